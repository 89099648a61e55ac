// Writes a run's content as one checkpoint folder, and removes what the retention policy gives up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/core/retention.h"
#include "checkpoint/run_content.h"
#include "checkpoint/storage/staged_folder.h"

namespace ddp {

using Notify = std::function<void(const std::string&)>;

struct RunDestination {
  std::filesystem::path directory{};
  int64_t step = 0;
  int64_t sequence = 1;  ///< above that of all others in the directory
  int world_size = 1;
  std::map<std::string, double> metrics{};
  RetentionPolicy retention{};
};

/// Commits the checkpoint, then prunes. Throws when it is not saved; what fails afterwards goes to `notify`. For the
/// holder of the directory's WriterLock.
void write_run(storage::FileSystem& file_system, const RunDestination& destination, const RunContent& content,
               const Notify& notify);

/// Writes `content` into `staged`, which may already hold other files, commits and prunes, as write_run() does.
void finish_run(storage::StagedFolder& staged, storage::FileSystem& file_system, const RunDestination& destination,
                const RunContent& content, const Notify& notify);

/// Removes the checkpoints that `policy` gives up, but never the newest whose contents are right, nor `just_saved`.
void prune_checkpoints(storage::FileSystem& file_system, const std::filesystem::path& directory,
                       const RetentionPolicy& policy, std::optional<int64_t> just_saved = std::nullopt);

}  // namespace ddp
