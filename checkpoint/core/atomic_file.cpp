#include "checkpoint/core/atomic_file.h"

#include <string>
#include <system_error>
#include <utility>

#include "checkpoint/storage/folder_names.h"

namespace ddp {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
}

std::filesystem::path temporary_path(const std::filesystem::path& target, const std::string& id) {
  return folder_of(target) / storage::temporary_name(target.filename().string(), id);
}

// What killed processes left, but not what somebody is writing, who holds a lock on it; best effort, since writing does
// not depend on it.
void remove_leftovers(storage::FileSystem& file_system, const std::filesystem::path& target) {
  const auto prefix = temporary_path(target, "").filename().string();
  std::error_code ignored;
  for (auto entry = std::filesystem::directory_iterator(folder_of(target), ignored);
       !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    try {
      const auto file = file_system.open(entry->path());
      if (file_system.lock(file, entry->path()) == storage::LockResult::kHeld) continue;
      file_system.remove(entry->path());
    } catch (const std::system_error&) {
      // It stays.
    }
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  remove_leftovers(file_system_, target_);
  temporary_ = temporary_path(target_, storage::random_id());
  file_ = file_system_.create(temporary_);
  static_cast<void>(file_system_.lock(file_, temporary_));
}

AtomicFile::~AtomicFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = file_system_.write(file_, bytes, size, temporary_);
    bytes += written;
    size -= written;
  }
}

void AtomicFile::commit() {
  file_system_.sync(file_, temporary_);
  file_system_.close(std::move(file_), temporary_);
  file_system_.rename(temporary_, target_);
  temporary_.clear();
  file_system_.sync_folder(folder_of(target_));
}

}  // namespace ddp
