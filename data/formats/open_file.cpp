#include "data/formats/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "base/block_file_size_signal.h"

namespace ddp {
namespace {

std::string system_reason() {
  return std::generic_category().message(errno);
}

}  // namespace

OpenFile::OpenFile(const std::filesystem::path& path) {
  // Nonblocking, because opening a pipe would otherwise wait for its other end.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw DataError(path, "cannot be opened: " + system_reason());
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    throw DataError(path, S_ISDIR(status.st_mode) ? "expected a file, got a folder"
                                                  : "expected a regular file, got a pipe, socket or device");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

OpenFile::~OpenFile() {
  if (file_ >= 0) ::close(file_);
}

int OpenFile::release() {
  return std::exchange(file_, -1);
}

ReplacedFile::ReplacedFile(std::filesystem::path path)
    : path_(std::move(path)), written_(std::filesystem::path(path_) += ".tmp-" + std::to_string(::getpid())) {
  file_ = ::open(written_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail();
}

ReplacedFile::~ReplacedFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(written_.c_str());
}

void ReplacedFile::fail() const {
  throw DataError(path_, "cannot be written: " + system_reason());
}

void ReplacedFile::write(std::string_view bytes) {
  const detail::BlockFileSizeSignal blocked;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    bytes.remove_prefix(static_cast<size_t>(count));
    position_ += static_cast<uint64_t>(count);
  }
}

void ReplacedFile::overwrite(uint64_t position, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    bytes.remove_prefix(static_cast<size_t>(count));
    position += static_cast<uint64_t>(count);
  }
}

void ReplacedFile::truncate(uint64_t position) {
  const auto end = static_cast<off_t>(position);
  if (::ftruncate(file_, end) != 0 || ::lseek(file_, end, SEEK_SET) != end) fail();
  position_ = position;
}

void ReplacedFile::commit() {
  const int closed = ::close(std::exchange(file_, -1));
  if (closed == 0 && std::rename(written_.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  ::unlink(written_.c_str());
  errno = error;
  fail();
}

}  // namespace ddp
