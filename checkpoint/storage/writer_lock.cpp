#include "checkpoint/storage/writer_lock.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <utility>

namespace ddp::storage {
namespace {

constexpr uint64_t kMaxEntryBytes = 400;
// Between open and lock, another process may have replaced the file.
constexpr int kLockAttempts = 100;

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "an unknown host";
  return name.data();
}

std::string this_process_name() {
  return "process " + std::to_string(::getpid()) + " on " + host_name();
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

}  // namespace

WriterLock::WriterLock(FileSystem& file_system, std::filesystem::path directory, int rank)
    : file_system_(file_system), directory_(std::move(directory)), path_(directory_ / kLockName), rank_(rank) {}

WriterLock::~WriterLock() {
  // Without the unlock, child processes that inherited the open file would keep the lock.
  if (file_.is_open() && owner_ == ::getpid()) file_system_.unlock(file_);
}

bool WriterLock::hold() {
  if (file_.is_open()) {
    if (owner_ != ::getpid()) {
      throw DirectoryInUse(directory_.string() + " is already in use for saving by process " + std::to_string(owner_) +
                           ", from which this process was forked: save in that process, or into another directory");
    }
    if (file_system_.is_named(file_, path_)) return false;
    file_ = {};  // the directory was removed, or replaced by another
  }
  file_system_.make_folders(directory_);
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    auto file = file_system_.open_lock(path_);
    const auto result = file_system_.lock(file, path_);
    if (result == LockResult::kHeld) throw DirectoryInUse(describe_holder(file));
    if (!file_system_.is_named(file, path_)) continue;
    excludes_others_ = result == LockResult::kTaken;
    if (excludes_others_) sign(file);
    file_ = std::move(file);
    owner_ = ::getpid();
    return true;
  }
  throw DirectoryInUse(path_.string() +
                       " is replaced repeatedly by another process: expected one process to save there");
}

void WriterLock::sign(const FileDescriptor& file) {
  try {
    file_system_.overwrite(file, this_process_name() + ", rank " + std::to_string(rank_) + ", since " + now() + "\n",
                           path_);
  } catch (const std::exception&) {
    // The disk may be full, for example. The lock is still held; messages of other processes then do not name this one.
  }
}

std::string WriterLock::describe_holder(const FileDescriptor& file) {
  std::string entry;
  try {
    entry.resize(std::min(file_system_.size(file, path_), kMaxEntryBytes));
    file_system_.read(file, entry.data(), entry.size(), 0, path_);
  } catch (const std::exception&) {
    entry.clear();
  }
  while (!entry.empty() && entry.back() == '\n') entry.pop_back();
  // Any program may have written this file: a terminal must not receive control characters from it.
  std::replace_if(
      entry.begin(), entry.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  if (entry.empty()) entry = "another process";
  const bool is_own = entry.starts_with(this_process_name() + ",");
  return directory_.string() + " is already in use for saving by " +
         (is_own ? "another CheckpointManager of this process: " : "") + entry +
         "; only one at a time can save there: " + (is_own ? "destroy that one" : "end that one") +
         ", or save into another directory";
}

}  // namespace ddp::storage
