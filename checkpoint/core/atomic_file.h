// A file that appears under its name only when it is complete and on disk: written under a temporary name beside the
// target, fsynced, renamed, and the folder fsynced (Pillai et al., OSDI '14, on why all four are needed). POSIX only,
// no LibTorch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/byte_sink.h"

namespace ddp {

/// Writes one file atomically. Use: construct, write() as often as needed, commit(). Without commit() the destructor
/// removes the temporary file and the target keeps what it had. Of several writers of a target the last wins. All
/// members throw std::system_error naming the path and the system's reason.
class AtomicFile : public storage::ByteSink {
 public:
  /// Creates `<target>.tmp-<random>`, after removing such files that a killed process has left for the same target.
  /// Those of a file system without locks stay.
  explicit AtomicFile(std::filesystem::path target,
                      std::shared_ptr<storage::FileSystem> file_system = std::make_shared<storage::FileSystem>());
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `size` bytes.
  void write(const void* data, size_t size) override;

  /// Makes the bytes durable and gives them the target's name, replacing what was there.
  void commit();

 private:
  void create();

  std::shared_ptr<storage::FileSystem> file_system_;
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  storage::FileDescriptor file_;
};

}  // namespace ddp
