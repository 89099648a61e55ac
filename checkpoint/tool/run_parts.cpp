#include "checkpoint/tool/run_parts.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/joined.h"
#include "checkpoint/core/printable_text.h"
#include "checkpoint/core/python_state.h"
#include "checkpoint/core/saved_optimizer.h"
#include "checkpoint/core/shallow_json.h"

namespace ddp::tool {
namespace {

std::set<std::string> names_in(const RawFile& file) {
  std::set<std::string> names;
  for (const auto& tensor : file.tensors) names.insert(tensor.name);
  return names;
}

SavedOptimizer saved_optimizer(const std::string& file, const std::string& text) {
  try {
    return parse_saved_optimizer(text);
  } catch (const std::invalid_argument& error) {
    if (file.empty()) throw;  // the source is that file, and the caller names it
    throw std::invalid_argument("its " + printable_text(file) + ": " + error.what());
  }
}

// Adds a single file: everything that is not an optimizer's state belongs to the model.
void add_file(const std::string& name, const RawFile& file, Parts& parts) {
  const auto groups = file.metadata.find(pt::kOptimizerMetadata);
  std::set<std::string> of_optimizer;
  if (groups != file.metadata.end()) {
    of_optimizer = optimizer_tensors(saved_optimizer(name, groups->second), names_in(file));
    parts.optimizers[""].groups = groups->second;
  }
  for (const auto& tensor : file.tensors) {
    const bool is_model = of_optimizer.count(tensor.name) == 0;
    (is_model ? parts.model : parts.optimizers[""].tensors).push_back(tensor);
  }
  parts.metadata = file.metadata;
  parts.metadata.erase(pt::kOptimizerMetadata);
}

// Adds a file with only an optimizer's state. None of its tensors belongs to the model, whose load_state_dict() would
// refuse it. Tensors of no parameter are left out, as by the code that loads the optimizer.
void add_optimizer_file(const std::string& name, const RawFile& file, const std::string& optimizer, Parts& parts) {
  const auto groups = file.metadata.find(pt::kOptimizerMetadata);
  if (groups == file.metadata.end()) {
    throw std::runtime_error("its " + printable_text(name) +
                             " does not say whose state it holds: it lacks the metadata " + pt::kOptimizerMetadata);
  }
  auto saved = saved_optimizer(name, groups->second);
  saved.type.clear();  // accepts fields that the type does not have
  const auto of_optimizer = optimizer_tensors(saved, names_in(file));
  auto& target = parts.optimizers[optimizer];
  target.groups = groups->second;
  for (const auto& tensor : file.tensors) {
    if (of_optimizer.contains(tensor.name)) {
      target.tensors.push_back(tensor);
    } else {
      parts.left_out["tensors of " + name + " that are not the state of its parameters"].push_back(tensor.name);
    }
  }
}

Parts split(const TensorSource& source, bool weights_only) {
  Parts parts;
  for (const auto& [name, file] : source.files()) {
    if (name.empty() || name == kModelFile) {
      add_file(name, file, parts);
    } else if (weights_only) {
      continue;
    } else if (name == kOptimizerFile) {
      add_optimizer_file(name, file, "", parts);
    } else if (name.starts_with(kNamedOptimizer)) {
      const auto length = name.size() - kNamedOptimizer.size() - kSafetensorsEnding.size();
      add_optimizer_file(name, file, name.substr(kNamedOptimizer.size(), length), parts);
    }
  }
  return parts;
}

// Whether the model that `entry` names has an optimizer by its name: {"generator": …, "optimizer_generator": …}, or
// {"netG": …, "optimizer_G": …}.
bool has_own_optimizer(const TensorSource& source, const std::string& entry) {
  return std::ranges::any_of(source.files(), [&](const auto& item) {
    const std::string_view file = item.first;
    if (!file.starts_with(kNamedOptimizer) || !file.ends_with(kSafetensorsEnding)) return false;
    const auto length = file.size() - kNamedOptimizer.size() - kSafetensorsEnding.size();
    const auto name = file.substr(kNamedOptimizer.size(), length);
    return !name.empty() && entry.ends_with(name);
  });
}

// Whether the dicts within a file's dict are models by name. A file with a whole run may have other dicts too, such as
// averages.
bool are_named_models(const TensorSource& source, const RawFile& file, bool weights_only) {
  const auto is_model = [&](const std::string& entry) { return has_own_optimizer(source, entry); };
  return weights_only ? std::ranges::all_of(file.entries, is_model) : std::ranges::any_of(file.entries, is_model);
}

// A file whose weights are under a key that is not usual would become one without them, or with that key in their
// names.
void check_model(const TensorSource& source, const Parts& parts, bool weights_only) {
  const auto ambiguous = [&](const auto& item) {
    return item.second.is_nested && !are_named_models(source, item.second, weights_only);
  };
  if (!parts.model.empty() && std::ranges::none_of(source.files(), ambiguous)) return;
  std::string entries;
  for (const auto& [name, file] : source.files()) {
    for (const auto& entry : file.entries) detail::append_item(entries, safetensors::quote_name(entry));
  }
  if (!entries.empty()) {
    throw std::invalid_argument(
        "the source has no tensors of a model under the usual keys (model, state_dict, …), but it has some under " +
        entries + ": choose one with --key");
  }
  if (weights_only) throw std::invalid_argument("the source has no tensors of a model: nothing is written");
}

}  // namespace

Parts parts_of(const TensorSource& source, bool weights_only) {
  auto parts = split(source, weights_only);
  check_model(source, parts, weights_only);
  return parts;
}

std::vector<RawTensor> tied_weights(const Parts& parts) {
  std::map<std::string, const RawTensor*> by_name;
  for (const auto& tensor : parts.model) by_name.emplace(tensor.name, &tensor);
  std::vector<RawTensor> tied;
  for (const auto& [alias, name] : parts.metadata) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || by_name.contains(alias)) continue;
    tied.push_back(*found->second);
    tied.back().name = alias;
  }
  return tied;
}

std::string groups_of(const TensorSource& source, const std::string& name, const OptimizerPart& optimizer) {
  const auto schedule = source.objects().find("schedule.state");
  if (!name.empty() || schedule == source.objects().end()) return optimizer.groups;
  return with_schedule(optimizer.groups, schedule->second);
}

nlohmann::json plain_values(const TensorSource& source) {
  auto values = source.plain().empty() ? nlohmann::json::object() : parse_shallow_json(source.plain());
  if (const auto* manifest = source.manifest()) {
    values["step"] = manifest->step;
    values["world_size"] = manifest->world_size;
    if (!manifest->metrics.empty()) values["metrics"] = manifest->metrics;
  }
  if (!source.values().empty()) values["values"] = parse_shallow_json(source.values());
  return values;
}

LeftOut other_contents(const TensorSource& source) {
  LeftOut left_out;
  const auto add = [&](const std::string& what, std::string name) {
    left_out[what + ", which need a .pt file"].push_back(std::move(name));
  };
  if (const auto ranks = source.files().find(std::string(kRanksFile)); ranks != source.files().end()) {
    for (const auto& tensor : ranks->second.tensors) add("states of ranks", tensor.name);
  }
  for (const auto& [file, text] : source.objects()) {
    add("objects", file.substr(0, file.size() - kObjectEnding.size()));
  }
  const auto values = plain_values(source);
  for (const auto& [name, value] : values.items()) {
    if (name == "values" && value.is_object()) {
      for (const auto& [own, ignored] : value.items()) add("values", own);
    } else {
      add("values", name);
    }
  }
  return left_out;
}

std::vector<std::string> describe(const LeftOut& left_out) {
  std::vector<std::string> lines;
  for (const auto& [what, names] : left_out) {
    const auto shown = [](const std::string& name) { return printable_text(name); };
    lines.push_back(what + " (" + std::to_string(names.size()) + "): " + detail::joined_some(names, 12, shown));
  }
  return lines;
}

}  // namespace ddp::tool
