// Every operation on files that a checkpoint's safety rests on, in one class: tests put another one in its place, which
// fails, stalls, or kills the process at any of them. POSIX, no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp::storage {

/// An open file that closes itself; move-only. Errors of that last close are lost: files that were written are closed
/// with FileSystem::close().
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  int release() {
    const int number = number_;
    number_ = -1;
    return number;
  }

 private:
  int number_ = -1;
};

/// The result of locking a file.
enum class LockResult {
  kTaken,
  kHeld,         ///< another process or descriptor has locked it
  kUnsupported,  ///< this file system has no locks
};

/// The real file system. All members throw std::system_error with the path and the system's reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// A new, empty file; it must not exist.
  virtual FileDescriptor create(const std::filesystem::path& path);
  /// Writes up to `size` bytes and returns how many; `path` is for the message. RLIMIT_FSIZE is an error, not a signal.
  virtual size_t write(const FileDescriptor& file, const void* data, size_t size, const std::filesystem::path& path);
  /// Asks the kernel to begin to write these bytes to the disk, so that sync() waits for less. Only a hint.
  virtual void start_flush(const FileDescriptor& file, uint64_t position, uint64_t size) noexcept;
  /// Makes the file's bytes durable.
  virtual void sync(const FileDescriptor& file, const std::filesystem::path& path);
  /// Closes, with the errors that network file systems report only then.
  virtual void close(FileDescriptor file, const std::filesystem::path& path);

  /// A regular file, to read. Pipes and devices are refused without waiting for them.
  virtual FileDescriptor open(const std::filesystem::path& path);
  virtual uint64_t size(const FileDescriptor& file, const std::filesystem::path& path);
  /// Exactly `size` bytes from `position` on; a file that is shorter is an error.
  virtual void read(const FileDescriptor& file, void* data, size_t size, uint64_t position,
                    const std::filesystem::path& path);

  /// A new folder; it must not exist, its parent must.
  virtual void make_folder(const std::filesystem::path& path);
  /// Creates a folder and its missing parents, each durably.
  virtual void make_folders(const std::filesystem::path& path);
  /// Makes the folder's entries durable. Does nothing on file systems that do not support it.
  virtual void sync_folder(const std::filesystem::path& path);
  /// Gives `from` the name `to`; a file replaces a file, a folder replaces only an empty one.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Swaps two names in one step. False when this file system cannot.
  virtual bool exchange(const std::filesystem::path& left, const std::filesystem::path& right);
  /// Removes a file, or a folder with all it holds; nothing when it is not there.
  virtual void remove(const std::filesystem::path& path);

  /// A file to lock, made if it is not there.
  virtual FileDescriptor open_lock(const std::filesystem::path& path);
  /// Locks the file for its open file description, at once or not at all (flock). The lock ends with unlock(), or when
  /// the last process that has this opening of it, by fork, closes it or dies.
  virtual LockResult lock(const FileDescriptor& file, const std::filesystem::path& path);
  virtual void unlock(const FileDescriptor& file) noexcept;
  /// Whether `path` still names this open file.
  virtual bool is_named(const FileDescriptor& file, const std::filesystem::path& path) noexcept;
  /// Replaces all that the file holds. Not durable.
  virtual void overwrite(const FileDescriptor& file, const std::string& text, const std::filesystem::path& path);

  /// Names of a folder's entries, sorted; empty if the folder does not exist.
  virtual std::vector<std::string> entries(const std::filesystem::path& folder);
};

}  // namespace ddp::storage
