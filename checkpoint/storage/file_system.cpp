#include "ddprun/detail/checkpoint/storage/file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/block_file_size_signal.h"

namespace ddp::storage {
namespace {

[[noreturn]] void fail(const char* action, const std::filesystem::path& path, int error) {
  throw std::system_error(error, std::generic_category(), std::string(action) + " " + path.string());
}

int retried_fsync(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result;
}

// Linux moves at most 2^31 - 4096 bytes a call.
constexpr size_t kMaxTransferBytes = size_t{1} << 30;

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (number_ >= 0) ::close(number_);
    number_ = other.release();
  }
  return *this;
}

FileDescriptor FileSystem::create(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open()) fail("cannot create", path, errno);
  return file;
}

size_t FileSystem::write(const FileDescriptor& file, const void* data, size_t size, const std::filesystem::path& path) {
  const detail::BlockFileSizeSignal blocked;
  while (true) {
    const auto written = ::write(file.get(), data, std::min(size, kMaxTransferBytes));
    if (written >= 0) return static_cast<size_t>(written);
    if (errno != EINTR) fail("cannot write to", path, errno);
  }
}

void FileSystem::start_flush(const FileDescriptor& file, uint64_t position, uint64_t size) noexcept {
  ::sync_file_range(file.get(), static_cast<off64_t>(position), static_cast<off64_t>(size), SYNC_FILE_RANGE_WRITE);
}

void FileSystem::sync(const FileDescriptor& file, const std::filesystem::path& path) {
  if (retried_fsync(file.get()) != 0) fail("cannot flush to disk", path, errno);
}

void FileSystem::close(FileDescriptor file, const std::filesystem::path& path) {
  if (::close(file.release()) != 0 && errno != EINTR) fail("cannot close", path, errno);
}

FileDescriptor FileSystem::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open() && errno == ELOOP)
    fail("cannot open (replace the symbolic link with what it stands for)", path, ELOOP);
  if (!file.is_open()) fail("cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("cannot read", path, errno);
  if (S_ISDIR(status.st_mode)) fail("expected a regular file, got", path, EISDIR);
  if (!S_ISREG(status.st_mode)) fail("expected a regular file, got", path, EINVAL);
  return file;
}

uint64_t FileSystem::size(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("cannot read", path, errno);
  return static_cast<uint64_t>(status.st_size);
}

void FileSystem::read(const FileDescriptor& file, void* data, size_t size, uint64_t position,
                      const std::filesystem::path& path) {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const auto got = ::pread(file.get(), bytes, std::min(size, kMaxTransferBytes), static_cast<off_t>(position));
    if (got < 0) {
      if (errno == EINTR) continue;
      fail("cannot read", path, errno);
    }
    if (got == 0) fail("the file became shorter while it was read:", path, EIO);
    bytes += got;
    size -= static_cast<size_t>(got);
    position += static_cast<uint64_t>(got);
  }
}

void FileSystem::make_folder(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) fail("cannot create the folder", path, errno);
}

void FileSystem::make_folders(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return;
  const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (path.filename().empty()) return make_folders(parent);  // "folder/"
  make_folders(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail("cannot create the folder", path, errno);
  if (!std::filesystem::is_directory(path, ignored)) fail("cannot create the folder", path, ENOTDIR);
  sync_folder(parent);
}

void FileSystem::sync_folder(const std::filesystem::path& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int error = !folder.is_open() || retried_fsync(folder.get()) != 0 ? errno : 0;
  // Some file systems have no fsync of folders, and a folder may be writable without being readable.
  if (error != 0 && error != EINVAL && error != ENOTSUP && error != EACCES)
    fail("cannot flush the folder", path, error);
}

void FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("cannot rename the temporary file or folder to", to, errno);
}

bool FileSystem::exchange(const std::filesystem::path& left, const std::filesystem::path& right) {
  if (::renameat2(AT_FDCWD, left.c_str(), AT_FDCWD, right.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  fail("cannot exchange", right, errno);
}

void FileSystem::remove(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail("cannot remove", path, error.value());
}

FileDescriptor FileSystem::open_lock(const std::filesystem::path& path) {
  // Opened for writing: on NFS, a lock of a file that is open for reading only does not exclude others.
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file.is_open()) fail("cannot open", path, errno);
  return file;
}

LockResult FileSystem::lock(const FileDescriptor& file, const std::filesystem::path& path) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    switch (errno) {
      case EINTR:
        continue;
      case EWOULDBLOCK:
        return LockResult::kHeld;
      case ENOLCK:
      case ENOTSUP:
      case ENOSYS:
      case EINVAL:
        return LockResult::kUnsupported;
      default:
        fail("cannot lock", path, errno);
    }
  }
  return LockResult::kTaken;
}

void FileSystem::unlock(const FileDescriptor& file) noexcept {
  ::flock(file.get(), LOCK_UN);
}

bool FileSystem::is_named(const FileDescriptor& file, const std::filesystem::path& path) noexcept {
  struct stat open {};
  struct stat named {};
  return ::fstat(file.get(), &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

void FileSystem::overwrite(const FileDescriptor& file, const std::string& text, const std::filesystem::path& path) {
  if (::ftruncate(file.get(), 0) != 0 || ::lseek(file.get(), 0, SEEK_SET) != 0) fail("cannot write to", path, errno);
  for (size_t written = 0; written < text.size();)
    written += write(file, text.data() + written, text.size() - written, path);
}

std::vector<std::string> FileSystem::entries(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  auto entry = std::filesystem::directory_iterator(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error.value() != ENOENT) fail("cannot list the folder", folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ddp::storage
