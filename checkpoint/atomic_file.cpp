#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <random>
#include <string>
#include <system_error>
#include <utility>

namespace ddp {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
}

std::string temporary_prefix(const std::filesystem::path& target) {
  return target.filename().string() + ".tmp-";
}

std::string random_suffix() {
  std::random_device source;
  const uint64_t bits = (uint64_t{source()} << 32) | source();
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kHex[(bits >> shift) & 15];
  return text;
}

// What killed processes left; best effort, since writing does not depend on it.
void remove_leftovers(const std::filesystem::path& target) {
  const auto prefix = temporary_prefix(target);
  std::error_code ignored;
  for (auto entry = std::filesystem::directory_iterator(folder_of(target), ignored);
       !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    std::error_code no_matter;
    if (entry->path().filename().string().starts_with(prefix)) std::filesystem::remove(entry->path(), no_matter);
  }
}

// Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ, whose default ends the process. Held back during a write, so that the
// call reports EFBIG like any other failure.
class BlockFileSizeSignal {
 public:
  BlockFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~BlockFileSizeSignal() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockFileSizeSignal(const BlockFileSizeSignal&) = delete;
  BlockFileSizeSignal& operator=(const BlockFileSizeSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

int retried_fsync(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  remove_leftovers(target_);
  temporary_ = folder_of(target_) / (temporary_prefix(target_) + random_suffix());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot create", errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  // Linux writes at most 2^31 - 4096 bytes a call.
  constexpr size_t kLargestWrite = size_t{1} << 30;
  const BlockFileSizeSignal blocked;
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = ::write(descriptor_, bytes, std::min(size, kLargestWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("cannot write to", errno);
    }
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (retried_fsync(descriptor_) != 0) fail("cannot flush to disk", errno);
  // Network file systems report a failed write as late as here.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail("cannot close", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot give its final name to", errno);
  temporary_.clear();

  const auto folder = folder_of(target_);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = descriptor < 0 || retried_fsync(descriptor) != 0 ? errno : 0;
  if (descriptor >= 0) ::close(descriptor);
  // Some file systems have no fsync of folders, and a folder may be writable without being readable.
  if (error != 0 && error != EINVAL && error != ENOTSUP && error != EACCES) {
    throw std::system_error(error, std::generic_category(), "cannot flush the folder " + folder.string() + " to disk");
  }
}

void AtomicFile::fail(const char* action, int error) const {
  throw std::system_error(
      error, std::generic_category(),
      std::string(action) + " " + target_.string() + " (as " + temporary_.filename().string() + ")");
}

}  // namespace ddp
