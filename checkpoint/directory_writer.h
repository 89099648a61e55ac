// Rank 0's saves into a run's directory: the lock, the numbers of the checkpoints, and at most one save at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/failures.h"
#include "checkpoint/host_snapshot.h"
#include "checkpoint/run_content.h"
#include "checkpoint/run_writer.h"
#include "checkpoint/storage/writer_lock.h"

namespace ddp {

class DirectoryWriter {
 public:
  DirectoryWriter(storage::FileSystem& file_system, const Notify& notify, std::filesystem::path directory);
  /// Waits for the save under way; its failure goes to `notify`.
  ~DirectoryWriter();
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  /// Waits for the save under way; why it failed.
  Failure finish();

  /// Makes sure that no other process writes. Throws when one does.
  void claim();

  /// After claim(): a number above those of all checkpoints in the directory.
  int64_t next_sequence();

  /// Saves in the caller's thread. Throws.
  void write_sync(RunDestination destination, const RunContent& content);

  /// Copies the tensors to host memory and saves in a thread. Throws when another process writes there; finish()
  /// returns every other failure.
  void write_async(const RunDestination& destination, RunContent content);

 private:
  void clean();

  storage::FileSystem& file_system_;
  const Notify& notify_;
  std::filesystem::path directory_;
  storage::WriterLock lock_;
  int64_t last_sequence_ = 0;
  bool is_counted_ = false;  // the directory's checkpoints, since it was taken
  bool has_warned_ = false;
  HostSnapshot snapshot_;
  std::future<Failure> under_way_;
};

/// The failure of the save of `step`, with that said in front.
Failure save_failure(int64_t step, Failure failure);

}  // namespace ddp
