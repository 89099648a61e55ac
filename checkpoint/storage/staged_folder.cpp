#include "checkpoint/storage/staged_folder.h"

#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "checkpoint/storage/durable_file.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"

namespace ddp::storage {
namespace {

void write_text(FileSystem& file_system, const std::filesystem::path& path, const std::string& text) {
  DurableFile file(file_system, path);
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace

StagedFolder::StagedFolder(FileSystem& file_system, std::filesystem::path directory, int64_t step)
    : file_system_(file_system),
      directory_(std::move(directory)),
      step_(step),
      id_(random_id()),
      final_(directory_ / folder_name(step)),
      temporary_(directory_ / temporary_name(folder_name(step), id_)) {
  file_system_.make_folders(directory_);
  file_system_.make_folder(temporary_);
}

StagedFolder::~StagedFolder() {
  if (temporary_.empty()) return;
  try {
    file_system_.remove(temporary_);
  } catch (const std::exception&) {
    // The next save removes it.
  }
}

void StagedFolder::write(const std::string& name, const std::function<void(ByteSink& sink)>& writer) {
  DurableFile file(file_system_, temporary_ / name);
  writer(file);
  manifest_.files[name] = file.finish();
}

void StagedFolder::adopt(const std::string& name, const FileRecord& record) {
  const auto path = temporary_ / name;
  std::string seen;
  try {
    const auto size = file_system_.size(file_system_.open(path), path);
    if (size != record.size) seen = std::to_string(size) + " bytes";
  } catch (const std::system_error& error) {
    if (is_resource_shortage(error.code())) throw;
    seen = error.code().message();
  }
  if (!seen.empty()) {
    throw std::runtime_error(path.string() + " was written by another process with " + std::to_string(record.size) +
                             " bytes, but this process does not find it (" + seen +
                             "): the directory must be on a disk that all ranks share");
  }
  manifest_.files[name] = record;
}

std::string StagedFolder::commit(Manifest manifest) {
  manifest.step = step_;
  manifest.files = manifest_.files;
  check_new_manifest(manifest);
  const auto text = format_manifest(manifest);
  write_text(file_system_, temporary_ / kManifestName, text);
  file_system_.sync_folder(temporary_);
  claim_name();
  file_system_.sync_folder(directory_);
  verify(text);
  try {
    if (!temporary_.empty()) file_system_.remove(std::exchange(temporary_, {}));
    const auto hint = directory_ / temporary_name(kLatestName, id_);
    write_text(file_system_, hint, folder_name(step_) + "\n");
    file_system_.rename(hint, directory_ / kLatestName);
    return "";
  } catch (const std::system_error& error) {
    return error.what();
  }
}

void StagedFolder::claim_name() {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(final_, ignored))) {
    file_system_.rename(temporary_, final_);
    temporary_.clear();
    return;
  }
  // From here on the folder with the temporary name is the earlier version.
  if (file_system_.exchange(temporary_, final_)) return;
  const auto aside = directory_ / replaced_name(folder_name(step_), id_);
  file_system_.rename(final_, aside);
  try {
    file_system_.rename(temporary_, final_);
  } catch (...) {
    file_system_.rename(aside, final_);
    throw;
  }
  temporary_ = aside;
}

void StagedFolder::verify(const std::string& manifest_text) {
  try {
    if (format_manifest(read_manifest(file_system_, final_)) == manifest_text) return;
    throw DamagedCheckpoint(final_.string() + " holds a different manifest");
  } catch (const UnreadableCheckpoint&) {
    restore_old_name();
    throw;
  } catch (const std::system_error&) {  // a shortage
    restore_old_name();
    throw;
  } catch (const DamagedCheckpoint& error) {
    restore_old_name();
    throw DamagedCheckpoint(std::string("another program changes this directory: after the commit, ") + error.what());
  }
}

void StagedFolder::restore_old_name() noexcept {
  const auto earlier = std::exchange(temporary_, {});  // the earlier version, if there was one
  try {
    if (!earlier.empty() && file_system_.exchange(earlier, final_)) {
      temporary_ = earlier;
      return;
    }
    const auto aside = directory_ / temporary_name(folder_name(step_), random_id());
    file_system_.rename(final_, aside);
    temporary_ = aside;
    if (!earlier.empty()) file_system_.rename(earlier, final_);
  } catch (const std::exception&) {
    // The folder stays under its final name. Readers notice that it is damaged.
  }
}

void remove_checkpoint(FileSystem& file_system, const std::filesystem::path& directory, int64_t step) {
  const auto doomed = directory / temporary_name(folder_name(step), random_id());
  file_system.rename(directory / folder_name(step), doomed);
  file_system.remove(doomed);
}

void remove_leftovers(FileSystem& file_system, const std::filesystem::path& directory) {
  std::exception_ptr failure;
  for (const auto& name : file_system.entries(directory)) {
    const auto found = leftover(name);
    if (!found) continue;
    std::error_code ignored;
    const auto target = directory / found->target;
    try {
      if (found->kind == Leftover::Kind::kTemporary || std::filesystem::exists(target, ignored)) {
        file_system.remove(directory / name);
      } else if (!std::filesystem::is_symlink(target, ignored)) {
        file_system.rename(directory / name, target);
      }
      // Otherwise `target` is a dangling link, perhaps to a disk that is missing, and this folder may be the only
      // version.
    } catch (const std::system_error&) {
      // A folder that cannot be removed does not prevent the removal of others.
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ddp::storage
