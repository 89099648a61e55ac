// Who may save into a directory of checkpoints: one process at a time. The lock dies with its process, also by SIGKILL.
// Readers never touch it. No LibTorch.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp::storage {

inline constexpr const char* kLockName = "writer.lock";

/// Somebody else saves into this directory; the message says who.
class DirectoryInUse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Not taken at construction. For one thread at a time.
class WriterLock {
 public:
  /// `rank` is for the messages of other processes.
  WriterLock(FileSystem& file_system, std::filesystem::path directory, int rank);
  /// Gives the lock back. In a process that was forked from the one that took it: leaves that one's lock alone.
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

  /// Takes the lock, or makes sure that it is still this process's; makes the directory if need be. True when it was
  /// taken just now, so that others may have been here before. Throws DirectoryInUse, and std::system_error for
  /// whatever the file system refuses.
  bool hold();

  /// False on a file system without locks: others may be writing here too.
  bool excludes_others() const { return excludes_others_; }

 private:
  std::string describe_holder(const FileDescriptor& file);
  void sign(const FileDescriptor& file);

  FileSystem& file_system_;
  std::filesystem::path directory_;
  std::filesystem::path path_;
  int rank_;
  FileDescriptor file_;  // open while the lock is held
  pid_t owner_ = 0;      // who took it
  bool excludes_others_ = true;
};

}  // namespace ddp::storage
