#include "checkpoint/run_writer.h"

#include <algorithm>
#include <vector>

#include "checkpoint/safetensors_bytes.h"
#include "checkpoint/storage/inventory.h"

namespace ddp {
namespace {

bool is_whole(storage::FileSystem& file_system, const storage::CheckpointEntry& entry) {
  try {
    storage::verify_files(file_system, entry.folder, entry.manifest);
    return true;
  } catch (const storage::DamagedCheckpoint&) {
    return false;
  }
}

}  // namespace

void write_run(storage::FileSystem& file_system, const RunDestination& destination, const RunContent& content,
               const Notify& notify) {
  storage::StagedFolder staged(file_system, destination.directory, destination.step);
  finish_run(staged, file_system, destination, content, notify);
}

void finish_run(storage::StagedFolder& staged, storage::FileSystem& file_system, const RunDestination& destination,
                const RunContent& content, const Notify& notify) {
  for (const auto& [name, part] : content.safetensors) {
    staged.write(name, [&](storage::ByteSink& sink) { write_safetensors(sink, part.tensors, part.metadata); });
  }
  for (const auto& [name, text] : content.texts) {
    staged.write(name, [&](storage::ByteSink& sink) { sink.write(text.data(), text.size()); });
  }
  const auto warning = staged.commit(
      {.sequence = destination.sequence, .world_size = destination.world_size, .metrics = destination.metrics});
  if (!warning.empty()) notify("the checkpoint is saved, but " + warning);
  try {
    prune_checkpoints(file_system, destination.directory, destination.retention, destination.step);
  } catch (const std::exception& error) {
    notify(std::string("the checkpoint is saved, but older ones cannot be removed: ") + error.what());
  }
}

void prune_checkpoints(storage::FileSystem& file_system, const std::filesystem::path& directory,
                       const RetentionPolicy& policy, std::optional<int64_t> just_saved) {
  if (!policy.keep_last && !policy.keep_every && !policy.keep_best) return;
  std::vector<storage::RetainedStep> valid;
  for (const auto& entry : storage::list_checkpoints(file_system, directory)) {
    if (entry.failure) continue;
    // The newest come first. Checkpoints that are newer than the first intact one are damaged, and do not count.
    if (valid.empty() && entry.step != just_saved && !is_whole(file_system, entry)) continue;
    valid.push_back({.step = entry.step, .sequence = entry.manifest.sequence, .metrics = entry.manifest.metrics});
  }
  for (const auto step : storage::steps_to_remove(valid, policy)) {
    if (step != just_saved) storage::remove_checkpoint(file_system, directory, step);
  }
}

}  // namespace ddp
