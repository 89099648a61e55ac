#include "checkpoint/storage/damage.h"

#include <algorithm>
#include <cerrno>

namespace ddp::storage {

bool is_resource_shortage(const std::error_code& error) {
  return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
         error == std::errc::not_enough_memory;
}

Failure& Failure::operator+=(const Failure& other) {
  if (!other) return *this;
  text += (*this ? "; " : "") + other.text;
  kind = std::max(kind, other.kind);
  return *this;
}

Failure failure_from(const DamagedCheckpoint& error) {
  const bool is_unreadable = dynamic_cast<const UnreadableCheckpoint*>(&error) != nullptr;
  return {.kind = is_unreadable ? FailureKind::kUnreadable : FailureKind::kDamaged, .text = error.what()};
}

void throw_damaged(const std::filesystem::path& folder, const std::string& reason) {
  throw DamagedCheckpoint("the checkpoint " + folder.string() + " is damaged: " + reason);
}

void throw_read_failure(const std::filesystem::path& folder, const std::system_error& error) {
  if (is_resource_shortage(error.code())) throw error;
  switch (error.code().value()) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EISDIR:  // FileSystem::open() found something that is not a regular file,
    case EINVAL:  // or the path is not a folder
      throw_damaged(folder, error.what());
    default:
      throw UnreadableCheckpoint("the checkpoint " + folder.string() + " cannot be read: " + error.what());
  }
}

}  // namespace ddp::storage
