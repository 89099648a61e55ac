#include "checkpoint/tool/new_folder.h"

#include <exception>
#include <stdexcept>

#include "checkpoint/storage/durable_file.h"
#include "checkpoint/storage/folder_names.h"

namespace ddp::tool {
namespace {

// An absolute path that does not end in a slash.
std::filesystem::path plain_path(const std::filesystem::path& target) {
  const auto path = std::filesystem::absolute(target / "").lexically_normal().parent_path();
  if (path.filename().empty()) throw std::invalid_argument(target.string() + " cannot be the name of a new folder");
  return path;
}

}  // namespace

void refuse_existing(const std::filesystem::path& target) {
  if (!std::filesystem::exists(std::filesystem::symlink_status(plain_path(target)))) return;
  throw std::invalid_argument(target.string() + " exists: a folder is written under a new name only");
}

NewFolder::NewFolder(storage::FileSystem& file_system, const std::filesystem::path& target)
    : file_system_(file_system), target_(plain_path(target)) {
  refuse_existing(target);
  const auto folder = target_.parent_path();
  file_system_.make_folders(folder);
  const auto temporary = folder / storage::temporary_name(target_.filename().string(), storage::random_id());
  file_system_.make_folder(temporary);
  temporary_ = temporary;
}

NewFolder::~NewFolder() {
  if (temporary_.empty()) return;
  try {
    file_system_.remove(temporary_);
  } catch (const std::exception&) {
    // The folder remains, under a name that shows that it is temporary.
  }
}

void NewFolder::write(const std::string& name, const std::function<void(storage::ByteSink& sink)>& writer) {
  storage::DurableFile file(file_system_, temporary_ / name);
  writer(file);
  file.finish();
}

void NewFolder::commit() {
  file_system_.sync_folder(temporary_);
  refuse_existing(target_);
  file_system_.rename(temporary_, target_);
  temporary_.clear();
  file_system_.sync_folder(target_.parent_path());
}

}  // namespace ddp::tool
