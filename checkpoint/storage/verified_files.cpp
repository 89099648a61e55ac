#include "checkpoint/storage/verified_files.h"

#include <system_error>
#include <utility>

#include "checkpoint/storage/file_checksum.h"
#include "checkpoint/storage/inventory.h"

namespace ddp::storage {
namespace {

// A writer that replaces the same step faster than this many readings of it is not a trainer.
constexpr int kAttempts = 20;

// All are opened before any is read: what is open stays readable when a writer removes the folder.
std::map<std::string, FileDescriptor> open_all(FileSystem& file_system, const std::filesystem::path& folder,
                                               const Manifest& manifest) {
  std::map<std::string, FileDescriptor> opened;
  for (const auto& [name, record] : manifest.files) opened[name] = file_system.open(folder / name);
  return opened;
}

std::map<std::string, Bytes> verify_and_map(FileSystem& file_system, const std::filesystem::path& folder,
                                            const Manifest& manifest) {
  std::map<std::string, Bytes> mapped;
  try {
    const auto files = open_all(file_system, folder, manifest);
    for (const auto& [name, record] : manifest.files) {
      const auto& file = files.at(name);
      const auto path = folder / name;
      check_size(file_system, file, folder, name, record);
      check_checksum(folder, name, record, file_checksum(file_system, file, path, record.size));
      mapped[name] = map_file(file_system, file, path);
    }
  } catch (const std::system_error& error) {
    throw_read_failure(folder, error);
  }
  return mapped;
}

bool was_replaced(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& before) {
  try {
    return format_manifest(read_manifest_only(file_system, folder)) != format_manifest(before);
  } catch (const DamagedCheckpoint&) {
    return false;
  }
}

}  // namespace

VerifiedFiles open_checkpoint(FileSystem& file_system, const std::filesystem::path& folder) {
  for (int attempt = 1;; ++attempt) {
    auto manifest = read_manifest_only(file_system, folder);
    try {
      auto files = verify_and_map(file_system, folder, manifest);
      return {.manifest = std::move(manifest), .files = std::move(files)};
    } catch (const DamagedCheckpoint&) {
      if (attempt == kAttempts || !was_replaced(file_system, folder, manifest)) throw;
    }
  }
}

}  // namespace ddp::storage
