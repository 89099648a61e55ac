#include "checkpoint/tool/folder_forms.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/json_float.h"
#include "checkpoint/core/rank_names.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/shards/shard_files.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/storage/writer_lock.h"
#include "checkpoint/tool/new_folder.h"
#include "checkpoint/tool/tensor_file.h"

namespace ddp::tool {
namespace {

using nlohmann::json;

// The tensors of each file.
std::vector<std::vector<RawTensor>> divide(std::vector<RawTensor> tensors, uint64_t max_bytes) {
  std::ranges::sort(tensors, {}, &RawTensor::name);
  std::vector<std::vector<RawTensor>> files;
  uint64_t bytes = 0;
  for (auto& tensor : tensors) {
    if (files.empty() || bytes + tensor.size() > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.size();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

// The metadata of one file: its format, and the further names of its weights.
Metadata metadata_of(const std::vector<RawTensor>& tensors, const Metadata& model) {
  Metadata metadata{{"format", "pt"}};
  for (const auto& [alias, name] : model) {
    const auto is_it = [&](const RawTensor& tensor) { return tensor.name == name; };
    if (std::ranges::any_of(tensors, is_it)) metadata[alias] = name;
  }
  return metadata;
}

// The program's values as a checkpoint holds them: those beside the parts of a .pt file, and its own.
json checkpoint_values(const TensorSource& source) {
  auto values = source.plain().empty() ? json::object() : parse_shallow_json(source.plain());
  for (const auto* key : {"step", "world_size", "metrics"}) values.erase(key);
  if (!source.values().empty()) {
    if (auto own = parse_shallow_json(source.values()); own.is_object()) values.update(own);
  }
  return values;
}

std::optional<int64_t> whole_number(const json& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

int64_t step_for(const json& values, const std::filesystem::path& target) {
  const auto name = (target / "").lexically_normal().parent_path().filename().string();
  const auto named = storage::step_of(name);
  const auto step = whole_number(values, "step");
  if (named && (!step || *step == *named)) return *named;
  throw std::invalid_argument("the target " + target.string() + " must be named " +
                              (step && *step >= 0 ? storage::folder_name(*step) : "step-<number>") +
                              ", as the checkpoint of its step is");
}

// The number of ranks whose names are in ranks.safetensors, up to the most that a manifest may have; 1 without such
// names.
int64_t ranks_in(const TensorSource& source) {
  uint64_t ranks = 1;
  const auto file = source.files().find(std::string(kRanksFile));
  if (file == source.files().end()) return 1;
  for (const auto& tensor : file->second.tensors) {
    const auto rank = rank_in_name(tensor.name);
    if (rank && *rank < storage::kMaxWorldSize) ranks = std::max(ranks, *rank + 1);
  }
  return static_cast<int64_t>(ranks);
}

storage::Manifest manifest_for(const TensorSource& source, const json& values) {
  if (source.manifest() != nullptr) {
    return {.world_size = source.manifest()->world_size, .metrics = source.manifest()->metrics};
  }
  storage::Manifest manifest;
  const auto ranks = std::max(whole_number(values, "world_size").value_or(1), ranks_in(source));
  manifest.world_size = ranks >= 1 && ranks <= storage::kMaxWorldSize ? static_cast<int>(ranks) : 1;
  if (const auto metrics = values.find("metrics"); metrics != values.end() && metrics->is_object()) {
    for (const auto& [name, value] : metrics->items()) {
      if (const auto number = named_float(value)) manifest.metrics[name] = *number;
      if (value.is_number()) manifest.metrics[name] = value.get<double>();
    }
  }
  return manifest;
}

void write_text(storage::StagedFolder& folder, const std::string& name, const std::string& text) {
  folder.write(name, [&](storage::ByteSink& sink) { sink.write(text.data(), text.size()); });
}

void write_tensors(storage::StagedFolder& folder, std::string_view name, const std::vector<RawTensor>& tensors,
                   const Metadata& metadata) {
  folder.write(std::string(name), [&](storage::ByteSink& sink) { write_tensor_file(sink, tensors, metadata); });
}

void write_run(storage::StagedFolder& folder, const TensorSource& source, const Parts& parts) {
  for (const auto& [name, optimizer] : parts.optimizers) {
    const auto file = name.empty() ? std::string(kOptimizerFile)
                                   : std::string(kNamedOptimizer) + name + std::string(kSafetensorsEnding);
    write_tensors(folder, file, optimizer.tensors, {{pt::kOptimizerMetadata, optimizer.groups}});
  }
  // CheckpointManager expects the file, also from a source that has no random streams.
  const auto ranks = source.files().find(std::string(kRanksFile));
  write_tensors(folder, kRanksFile, ranks != source.files().end() ? ranks->second.tensors : std::vector<RawTensor>(),
                {});
  for (const auto& [name, text] : source.objects()) write_text(folder, name, text);
  write_text(folder, std::string(kValuesFile), checkpoint_values(source).dump(2) + "\n");
}

}  // namespace

LeftOut write_hugging_face_folder(const TensorSource& source, const std::filesystem::path& target,
                                  const ConvertOptions& options) {
  refuse_existing(target);
  auto parts = parts_of(source, options.weights_only);
  if (parts.model.empty()) throw std::invalid_argument("the source has no tensors of a model: nothing is written");
  storage::FileSystem file_system;
  NewFolder folder(file_system, target);
  const auto files = divide(parts.model, options.max_file_size);
  uint64_t bytes = 0;
  auto places = json::object();
  for (size_t i = 0; i < files.size(); ++i) {
    const auto name =
        shards::shard_file_name(std::string(kModelFile), static_cast<int>(i), static_cast<int>(files.size()));
    for (const auto& tensor : files[i]) {
      places[tensor.name] = name;
      bytes += tensor.size();
    }
    folder.write(name, [&](storage::ByteSink& sink) {
      write_tensor_file(sink, files[i], metadata_of(files[i], parts.metadata));
    });
  }
  const json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", places}};
  const auto text = index.dump(2) + "\n";
  folder.write("model.safetensors.index.json", [&](storage::ByteSink& sink) { sink.write(text.data(), text.size()); });
  folder.commit();
  if (options.weights_only) return {};
  for (const auto& [name, optimizer] : parts.optimizers) {
    parts.left_out["optimizers, which need a .pt file, --to dcp or --to checkpoint"].push_back(
        name.empty() ? "the main one" : name);
  }
  parts.left_out.merge(other_contents(source));
  return std::move(parts.left_out);
}

LeftOut write_checkpoint(const TensorSource& source, const std::filesystem::path& target,
                         const ConvertOptions& options) {
  refuse_existing(target);
  const auto values = plain_values(source);
  const auto step = step_for(values, target);
  auto parts = parts_of(source, options.weights_only);
  const auto directory = std::filesystem::absolute(target / "").lexically_normal().parent_path().parent_path();
  storage::FileSystem file_system;
  storage::WriterLock lock(file_system, directory, 0);
  lock.hold();
  storage::StagedFolder folder(file_system, directory, step);
  write_tensors(folder, kModelFile, parts.model, parts.metadata);
  if (!options.weights_only) write_run(folder, source, parts);
  auto manifest = manifest_for(source, values);
  manifest.sequence = storage::last_sequence(file_system, directory) + 1;
  refuse_existing(target);
  folder.commit(std::move(manifest));
  return std::move(parts.left_out);
}

}  // namespace ddp::tool
