#include "checkpoint/core/atomic_file.h"

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "checkpoint/storage/folder_names.h"

namespace ddp {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
}

// Leaves room for the ending in a name of the longest length that file systems have.
std::filesystem::path temporary_path(const std::filesystem::path& target, const std::string& id) {
  constexpr size_t kMaxNameLength = 255;
  static const auto kEnding = storage::temporary_name("", storage::random_id()).size();
  return folder_of(target) /
         storage::temporary_name(target.filename().string().substr(0, kMaxNameLength - kEnding), id);
}

void check_is_file_name(const std::filesystem::path& target) {
  const auto name = target.filename();
  if (!name.empty() && name != "." && name != "..") return;
  throw std::system_error(EISDIR, std::generic_category(), "cannot write to '" + target.string() + "'");
}

// Removes temporary files of killed processes. A file whose writer is alive is locked, and stays. Errors are ignored,
// since writing does not depend on this.
void remove_leftovers(storage::FileSystem& file_system, const std::filesystem::path& target) {
  const auto prefix = temporary_path(target, "").filename().string();
  std::error_code ignored;
  for (auto entry = std::filesystem::directory_iterator(folder_of(target), ignored);
       !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    try {
      const auto file = file_system.open(entry->path());
      // Without locks it is unknown whether the writer is alive.
      if (file_system.lock(file, entry->path()) != storage::LockResult::kTaken) continue;
      file_system.remove(entry->path());
    } catch (const std::system_error&) {
      // The file stays.
    }
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target, std::shared_ptr<storage::FileSystem> file_system)
    : file_system_(std::move(file_system)), target_(std::move(target)) {
  check_is_file_name(target_);
  remove_leftovers(*file_system_, target_);
  create();
}

void AtomicFile::create() {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto path = temporary_path(target_, storage::random_id());
    file_ = file_system_->create(path);
    temporary_ = path;
    try {
      // Before this process had the lock, another writer may have taken the file for a leftover and removed it.
      if (file_system_->lock(file_, path) != storage::LockResult::kHeld && file_system_->is_named(file_, path)) return;
    } catch (const std::system_error&) {
      // The destructor does not run when the constructor throws.
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
      throw;
    }
  }
  throw std::system_error(EBUSY, std::generic_category(), "cannot create " + temporary_.string());
}

AtomicFile::~AtomicFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = file_system_->write(file_, bytes, size, temporary_);
    bytes += written;
    size -= written;
  }
}

void AtomicFile::commit() {
  file_system_->sync(file_, temporary_);
  // The lock is held until the file has its name: another writer would otherwise take it for a leftover.
  const storage::FileDescriptor locked(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  file_system_->close(std::move(file_), temporary_);
  file_system_->rename(temporary_, target_);
  temporary_.clear();
  file_system_->sync_folder(folder_of(target_));
}

}  // namespace ddp
