// Saves that all ranks write together: each its own files, which rank 0 commits as one checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/directory_writer.h"
#include "checkpoint/failures.h"
#include "checkpoint/run_content.h"
#include "checkpoint/run_writer.h"
#include "checkpoint/sharded_content.h"
#include "checkpoint/staging_queue.h"
#include "checkpoint/storage/staged_folder.h"

namespace ddp {

/// Settings of a ShardedSave.
struct ShardedSaveOptions {
  std::filesystem::path directory{};
  uint64_t staging_bytes = 0;  ///< most bytes of the state that wait in host memory for the disk
};

class ShardedSave {
 public:
  /// `writer` is rank 0's, null on the others; all must outlive it.
  ShardedSave(storage::FileSystem& file_system, const Notify& notify, DirectoryWriter* writer, const GroupHandle& group,
              ShardedSaveOptions options);
  /// Waits for the save under way; its failure goes to `notify`.
  ~ShardedSave();
  ShardedSave(const ShardedSave&) = delete;
  ShardedSave& operator=(const ShardedSave&) = delete;

  /// Waits for this rank's part of the save under way; why the save failed.
  Failure finish();

  /// Every rank must call these with its part of the state; `content` is rank 0's. Both return the same failure on all
  /// ranks. write_async() returns when what is left of the state to write is in host memory; finish() returns why the
  /// rest failed.
  Failure write_sync(const RunDestination& destination, const RunContent& content, const ShardedContent& shards);
  Failure write_async(const RunDestination& destination, RunContent content, const ShardedContent& shards);

 private:
  struct File;
  // The folder in which all ranks write, made by rank 0.
  struct Target {
    std::filesystem::path folder{};
    std::unique_ptr<storage::StagedFolder> staged{};  // rank 0's
    RunDestination destination{};
  };

  Failure open(const RunDestination& destination, Target& target);
  Failure commit(Target& target, RunContent content, Failure failure, const std::vector<File>& files,
                 const GroupHandle& group);
  void stage(const ShardedContent& shards);
  std::vector<File> write_staged(const std::filesystem::path& folder);
  const GroupHandle& commit_group();

  storage::FileSystem& file_system_;
  const Notify& notify_;
  DirectoryWriter* writer_;
  GroupHandle group_;
  ShardedSaveOptions options_;
  std::optional<ProcessGroup> commit_group_{};  // the training's collectives use another one
  std::unique_ptr<StagingQueue> queue_{};
  std::future<Failure> under_way_{};
};

}  // namespace ddp
