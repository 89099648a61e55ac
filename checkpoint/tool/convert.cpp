#include "checkpoint/tool/convert.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/core/atomic_file.h"
#include "checkpoint/core/python_state.h"
#include "checkpoint/core/saved_optimizer.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/state_dict.h"

namespace ddp::tool {
namespace {

struct Optimizer {
  std::string groups{};
  std::vector<RawTensor> tensors{};
};

// What of a source belongs to the model, what to which optimizer.
struct Parts {
  std::vector<RawTensor> model{};
  Metadata metadata{};                            ///< the model's, which names tied weights
  std::map<std::string, Optimizer> optimizers{};  ///< by name; the main one's is empty
};

void add_file(const RawFile& file, const std::string& optimizer, Parts& parts) {
  const auto groups = file.metadata.find(pt::kOptimizerMetadata);
  std::set<std::string> names, of_optimizer;
  for (const auto& tensor : file.tensors) names.insert(tensor.name);
  if (groups != file.metadata.end()) {
    of_optimizer = optimizer_tensors(parse_saved_optimizer(groups->second), names);
    parts.optimizers[optimizer].groups = groups->second;
  }
  for (const auto& tensor : file.tensors) {
    const bool is_model = of_optimizer.count(tensor.name) == 0;
    (is_model ? parts.model : parts.optimizers[optimizer].tensors).push_back(tensor);
  }
}

Parts parts_of(const TensorSource& source) {
  Parts parts;
  for (const auto& [name, file] : source.files()) {
    if (name.empty() || name == kModelFile) {
      add_file(file, "", parts);
      parts.metadata = file.metadata;
      parts.metadata.erase(pt::kOptimizerMetadata);
    } else if (name == kOptimizerFile) {
      add_file(file, "", parts);
    } else if (name.starts_with(kNamedOptimizer)) {
      const auto length = name.size() - kNamedOptimizer.size() - kSafetensorsEnding.size();
      add_file(file, name.substr(kNamedOptimizer.size(), length), parts);
    }
  }
  return parts;
}

pt::PtTensor as_pt(const RawTensor& tensor) {
  return {.name = tensor.name, .dtype = tensor.dtype, .sizes = tensor.sizes, .bytes = tensor.bytes};
}

// Of a rank's number in a name; nothing for what is none, or more than a job has.
std::optional<size_t> rank_of(std::string_view digits) {
  constexpr size_t kMostRanks = 1 << 20;
  size_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank >= kMostRanks) return std::nullopt;
  return rank;
}

// "rank.3.rng.cpu" and "rank.3.object.name".
void add_ranks(const RawFile& file, pt::PtContents& contents) {
  for (const auto& tensor : file.tensors) {
    const auto dot = tensor.name.find('.', 5);
    if (!tensor.name.starts_with("rank.") || dot == std::string::npos) continue;
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
    }
  }
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

// Scaler, schedule and sampler under Python's names; what is no JSON (objects of the program's own) as bytes.
void add_objects(const TensorSource& source, nlohmann::json& values, pt::PtContents& contents) {
  for (const auto& [file, text] : source.objects()) {
    auto name = file.substr(0, file.size() - kObjectEnding.size());
    if (name.starts_with(kShared)) {
      contents.shared.emplace(name.substr(kShared.size()), text);
      continue;
    }
    const bool is_schedule = name == "schedule";
    if (is_schedule) name = "scheduler";
    if (const auto object = json_object(text)) {
      values[name] = parse_shallow_json(is_schedule ? python_schedule(*object) : *object);
    } else {
      contents.objects.emplace(name, text);
    }
  }
}

void add_run(const TensorSource& source, const Parts& parts, pt::PtContents& contents) {
  const auto schedule = source.objects().find("schedule.state");
  for (const auto& [name, optimizer] : parts.optimizers) {
    auto& target = contents.optimizers[name];
    target.groups = name.empty() && schedule != source.objects().end()
                        ? with_schedule(optimizer.groups, schedule->second)
                        : optimizer.groups;
    for (const auto& tensor : optimizer.tensors) target.tensors.push_back(as_pt(tensor));
  }
  auto values = plain_values(source);
  add_objects(source, values, contents);
  if (!values.empty()) contents.values = values.dump();
  const auto ranks = source.files().find(std::string(kRanksFile));
  if (ranks != source.files().end()) add_ranks(ranks->second, contents);
}

void write_pt_file(const TensorSource& source, const Parts& parts, storage::ByteSink& sink, bool weights_only) {
  pt::PtContents contents;
  std::map<std::string, const RawTensor*> by_name;
  for (const auto& tensor : parts.model) {
    contents.model.push_back(as_pt(tensor));
    by_name.emplace(tensor.name, &tensor);
  }
  // Tied weights are stored once, and the metadata maps their other names to the first.
  for (const auto& [alias, name] : parts.metadata) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || by_name.count(alias) != 0) continue;
    auto tied = as_pt(*found->second);
    tied.name = alias;
    contents.model.push_back(std::move(tied));
  }
  if (!weights_only) add_run(source, parts, contents);
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
      const auto* dtype = safetensors_dtype(tensor.dtype);
      if (dtype == nullptr) {
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

void convert(const TensorSource& source, const std::filesystem::path& target, bool weights_only) {
  const auto ending = target.extension();
  const bool to_pt = ending == ".pt" || ending == ".pth";
  if (!to_pt && ending != ".safetensors") {
    throw std::invalid_argument("the target " + target.string() + " must end in .pt, .pth or .safetensors");
  }
  const auto parts = parts_of(source);
  AtomicFile file(target);
  if (to_pt) {
    write_pt_file(source, parts, file, weights_only);
  } else {
    write_safetensors_file(parts, file, weights_only);
  }
  file.commit();
}

}  // namespace ddp::tool
