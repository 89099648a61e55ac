#include "checkpoint/tool/convert.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/joined.h"
#include "checkpoint/core/atomic_file.h"
#include "checkpoint/core/printable_text.h"
#include "checkpoint/core/python_state.h"
#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/core/saved_optimizer.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {
namespace {

// A JSON object: those of a .pt file, a checkpoint's step, world_size and metrics, and under "values" the program's
// own. Throws nlohmann::json::exception or std::invalid_argument when a file's JSON is damaged.
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

constexpr const char* kTakenNames = "values whose names other entries of the file have";

struct Optimizer {
  std::string groups{};
  std::vector<RawTensor> tensors{};
};

// What of a source belongs to the model, what to which optimizer.
struct Parts {
  std::vector<RawTensor> model{};
  Metadata metadata{};                            ///< the model's, which names tied weights
  std::map<std::string, Optimizer> optimizers{};  ///< by name; the main one's is empty
  LeftOut left_out{};
};

std::set<std::string> names_in(const RawFile& file) {
  std::set<std::string> names;
  for (const auto& tensor : file.tensors) names.insert(tensor.name);
  return names;
}

// A single file: what is no optimizer's state is the model's.
void add_file(const RawFile& file, Parts& parts) {
  const auto groups = file.metadata.find(pt::kOptimizerMetadata);
  std::set<std::string> of_optimizer;
  if (groups != file.metadata.end()) {
    of_optimizer = optimizer_tensors(parse_saved_optimizer(groups->second), names_in(file));
    parts.optimizers[""].groups = groups->second;
  }
  for (const auto& tensor : file.tensors) {
    const bool is_model = of_optimizer.count(tensor.name) == 0;
    (is_model ? parts.model : parts.optimizers[""].tensors).push_back(tensor);
  }
  parts.metadata = file.metadata;
  parts.metadata.erase(pt::kOptimizerMetadata);
}

// A file that is an optimizer's alone. No tensor of it is the model's, whose load_state_dict() would refuse it; what no
// parameter has is skipped by the code that loads the optimizer, too.
void add_optimizer_file(const std::string& name, const RawFile& file, const std::string& optimizer, Parts& parts) {
  const auto groups = file.metadata.find(pt::kOptimizerMetadata);
  if (groups == file.metadata.end()) {
    throw std::runtime_error("its " + printable_text(name) +
                             " does not say whose state it holds: it lacks the metadata " + pt::kOptimizerMetadata);
  }
  auto saved = parse_saved_optimizer(groups->second);
  saved.type.clear();  // also fields that its type has not
  const auto of_optimizer = optimizer_tensors(saved, names_in(file));
  auto& target = parts.optimizers[optimizer];
  target.groups = groups->second;
  for (const auto& tensor : file.tensors) {
    if (of_optimizer.contains(tensor.name)) {
      target.tensors.push_back(tensor);
    } else {
      parts.left_out["tensors of " + name + " that are no state of its parameters"].push_back(tensor.name);
    }
  }
}

Parts parts_of(const TensorSource& source, bool weights_only) {
  Parts parts;
  for (const auto& [name, file] : source.files()) {
    if (name.empty() || name == kModelFile) {
      add_file(file, parts);
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

// Whether the dicts in a file's dict are models by name. Beside them a whole run may have other dicts, such as
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
        "the source has no tensors of a model under the usual keys (model, state_dict, …), but some under " + entries +
        ": say which with --key");
  }
  if (weights_only) throw std::invalid_argument("the source has no tensors of a model: nothing is written");
}

pt::PtTensor as_pt(const RawTensor& tensor) {
  return {.name = tensor.name, .dtype = tensor.dtype, .sizes = tensor.sizes, .bytes = tensor.bytes};
}

// Of a rank's number in a name; nothing for other text, or more than a job has.
std::optional<size_t> rank_of(std::string_view digits) {
  constexpr size_t kMostRanks = 1 << 20;
  size_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank >= kMostRanks) return std::nullopt;
  return rank;
}

// "rank.3.rng.cpu" and "rank.3.object.name".
void add_ranks(const RawFile& file, pt::PtContents& contents, LeftOut& left_out) {
  const auto leave_out = [&](const RawTensor& tensor) {
    left_out["tensors of " + std::string(kRanksFile) + " that are no state of a rank"].push_back(tensor.name);
  };
  for (const auto& tensor : file.tensors) {
    const auto dot = tensor.name.find('.', 5);
    if (!tensor.name.starts_with("rank.") || dot == std::string::npos) {
      leave_out(tensor);
      continue;
    }
    const auto rank = rank_of(std::string_view(tensor.name).substr(5, dot - 5));
    if (!rank) {
      throw std::runtime_error("its ranks.safetensors names no rank: " + safetensors::quote_name(tensor.name));
    }
    const auto rest = std::string_view(tensor.name).substr(dot + 1);
    if (rest.starts_with("rng.")) {
      if (contents.rng.size() <= *rank) contents.rng.resize(*rank + 1);
      auto state = as_pt(tensor);
      state.name = rest.substr(4);
      contents.rng[*rank].push_back(std::move(state));
    } else if (rest.starts_with("object.")) {
      if (contents.per_rank.size() <= *rank) contents.per_rank.resize(*rank + 1);
      contents.per_rank[*rank].emplace(rest.substr(7), tensor.bytes);
    } else {
      leave_out(tensor);
    }
  }
}

// Scaler, schedule and sampler under Python's names; what is no JSON (objects of the program's own) as bytes.
void add_objects(const TensorSource& source, nlohmann::json& values, pt::PtContents& contents, LeftOut& left_out) {
  for (const auto& [file, text] : source.objects()) {
    auto name = file.substr(0, file.size() - kObjectEnding.size());
    if (name.starts_with(kShared)) {
      contents.shared.emplace(name.substr(kShared.size()), text);
      continue;
    }
    const bool is_schedule = name == "schedule";
    if (is_schedule) name = "scheduler";
    if (values.contains(name)) left_out[kTakenNames].push_back(name);
    if (const auto object = json_object(text)) {
      values[name] = parse_shallow_json(is_schedule ? python_schedule(*object) : *object);
    } else {
      values.erase(name);
      contents.objects.emplace(name, text);
    }
  }
}

// A plain value beside the parts of a run may have a part's name: {"model": "resnet50", "state_dict": …}.
void remove_taken_names(nlohmann::json& values, const pt::PtContents& contents, LeftOut& left_out) {
  for (const auto& name : pt::part_names(contents)) {
    if (values.erase(name) != 0) left_out[kTakenNames].push_back(name);
  }
}

void add_run(const TensorSource& source, const Parts& parts, pt::PtContents& contents, LeftOut& left_out) {
  const auto schedule = source.objects().find("schedule.state");
  for (const auto& [name, optimizer] : parts.optimizers) {
    auto& target = contents.optimizers[name];
    target.groups = name.empty() && schedule != source.objects().end()
                        ? with_schedule(optimizer.groups, schedule->second)
                        : optimizer.groups;
    for (const auto& tensor : optimizer.tensors) target.tensors.push_back(as_pt(tensor));
  }
  const auto ranks = source.files().find(std::string(kRanksFile));
  if (ranks != source.files().end()) add_ranks(ranks->second, contents, left_out);
  auto values = plain_values(source);
  add_objects(source, values, contents, left_out);
  remove_taken_names(values, contents, left_out);
  if (!values.empty()) contents.values = values.dump();
}

void write_pt_file(const TensorSource& source, Parts& parts, storage::ByteSink& sink, bool weights_only) {
  pt::PtContents contents;
  std::map<std::string, const RawTensor*> by_name;
  for (const auto& tensor : parts.model) {
    contents.model.push_back(as_pt(tensor));
    by_name.emplace(tensor.name, &tensor);
  }
  // Tied weights are stored once, and the metadata maps their other names to the first.
  for (const auto& [alias, name] : parts.metadata) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || by_name.count(alias) != 0) {
      // Python's libraries write {"format": "pt"} everywhere.
      if (alias != "format" && !weights_only) parts.left_out["texts of metadata"].push_back(alias);
      continue;
    }
    auto tied = as_pt(*found->second);
    tied.name = alias;
    contents.model.push_back(std::move(tied));
  }
  if (!weights_only) add_run(source, parts, contents, parts.left_out);
  pt::write_pt(sink, contents);
}

void write_safetensors_file(const Parts& parts, storage::ByteSink& sink, bool weights_only) {
  safetensors::Header header;
  header.metadata = parts.metadata;
  const auto optimizer = parts.optimizers.find("");
  if (!weights_only && parts.optimizers.size() > (optimizer != parts.optimizers.end() ? 1 : 0)) {
    throw std::invalid_argument(
        "a .safetensors file holds one optimizer, but there are some by name: convert to .pt, or give --weights-only");
  }
  const bool has_optimizer = !weights_only && optimizer != parts.optimizers.end();
  if (has_optimizer) header.metadata[pt::kOptimizerMetadata] = optimizer->second.groups;
  std::map<std::string, std::string_view> data;
  const auto add = [&](const std::vector<RawTensor>& tensors) {
    for (const auto& tensor : tensors) {
      const auto dtype = safetensors::dtype_of_python_name(tensor.dtype);
      if (!dtype) {
        throw std::invalid_argument("the safetensors format has no dtype for " + tensor.dtype + " (tensor " +
                                    safetensors::quote_name(tensor.name) + ")");
      }
      header.tensors.push_back({.name = tensor.name, .dtype = *dtype, .shape = tensor.sizes});
      if (!data.emplace(tensor.name, tensor.bytes).second) {
        throw std::invalid_argument("model and optimizer both have a tensor " + safetensors::quote_name(tensor.name));
      }
    }
  };
  add(parts.model);
  if (has_optimizer) add(optimizer->second.tensors);
  safetensors::assign_ranges(header.tensors);
  const auto head = safetensors::format_header(header);
  sink.write(head.data(), head.size());
  for (const auto& entry : header.tensors) sink.write(data.at(entry.name).data(), data.at(entry.name).size());
}

}  // namespace

LeftOut convert(const TensorSource& source, const std::filesystem::path& target, bool weights_only) {
  const auto ending = target.extension();
  const bool to_pt = ending == ".pt" || ending == ".pth";
  if (!to_pt && ending != ".safetensors") {
    throw std::invalid_argument("the target " + target.string() + " must end in .pt, .pth or .safetensors");
  }
  auto parts = parts_of(source, weights_only);
  check_model(source, parts, weights_only);
  AtomicFile file(target);
  if (to_pt) {
    write_pt_file(source, parts, file, weights_only);
  } else {
    write_safetensors_file(parts, file, weights_only);
    if (!weights_only) parts.left_out.merge(other_contents(source));
  }
  file.commit();
  return std::move(parts.left_out);
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
