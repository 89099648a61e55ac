#include "checkpoint/storage/inventory.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "checkpoint/storage/file_checksum.h"
#include "checkpoint/storage/folder_names.h"

namespace ddp::storage {
namespace {

std::string read_text(FileSystem& file_system, const std::filesystem::path& path) {
  const auto file = file_system.open(path);
  const auto size = file_system.size(file, path);
  if (size > kMaxManifestBytes) throw ManifestError("it has " + std::to_string(size) + " bytes");
  std::string text(size, '\0');
  file_system.read(file, text.data(), text.size(), 0, path);
  return text;
}

void check_sizes(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    try {
      check_size(file_system, file_system.open(folder / name), folder, name, record);
    } catch (const std::system_error& error) {
      throw_read_failure(folder, error);
    }
  }
}

// A name whose lookup fails does not count as removed.
bool is_gone(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() == std::filesystem::file_type::not_found;
}

// The step of a checkpoint, from its folder's name. While a checkpoint is being replaced and its name is free, the old
// folder counts.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& directory, const std::string& name) {
  if (const auto step = step_of(name)) return step;
  const auto old = leftover(name);
  if (!old || old->kind != Leftover::Kind::kReplaced || is_there(directory / old->target)) return std::nullopt;
  return step_of(old->target);
}

CheckpointEntry read_entry(FileSystem& file_system, const std::filesystem::path& folder, int64_t step) {
  CheckpointEntry entry{.step = step, .folder = folder};
  // The sequence number is unknown without a manifest. With the highest one the folder is listed first and is not
  // overlooked.
  entry.manifest.sequence = std::numeric_limits<int64_t>::max();
  try {
    entry.manifest = read_manifest_only(file_system, folder);
    check_sizes(file_system, folder, entry.manifest);
    if (entry.manifest.step != step) {
      throw_damaged(folder, "its manifest belongs to step " + std::to_string(entry.manifest.step));
    }
  } catch (const DamagedCheckpoint& error) {
    entry.failure = failure_from(error);
  }
  return entry;
}

// While others change a folder, a listing may miss an entry that is renamed but never absent.
constexpr int kMaxListings = 20;

// More saves than a run makes. A manifest that cannot be read now may have a number above all others.
constexpr int64_t kUnreadSequences = 1'000'000;

}  // namespace

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

Manifest read_manifest_only(FileSystem& file_system, const std::filesystem::path& folder) {
  try {
    return parse_manifest(read_text(file_system, folder / kManifestName));
  } catch (const ManifestError& error) {
    throw_damaged(folder, std::string(kManifestName) + ": " + error.what());
  } catch (const std::system_error& error) {
    throw_read_failure(folder, error);
  }
}

void check_size(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& folder,
                const std::string& name, const FileRecord& record) {
  const auto size = file_system.size(file, folder / name);
  if (size == record.size) return;
  throw_damaged(folder,
                name + " has " + std::to_string(size) + " bytes, but " + std::to_string(record.size) + " were written");
}

Manifest read_manifest(FileSystem& file_system, const std::filesystem::path& folder) {
  auto manifest = read_manifest_only(file_system, folder);
  check_sizes(file_system, folder, manifest);
  return manifest;
}

void check_checksum(const std::filesystem::path& folder, const std::string& name, const FileRecord& record,
                    uint32_t checksum) {
  if (checksum == record.crc32c) return;
  throw_damaged(folder, "the bytes of " + name + " are not those that were written (CRC32C)");
}

void verify_files(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    uint32_t checksum = 0;
    try {
      checksum = file_checksum(file_system, folder / name, record.size);
    } catch (const std::system_error& error) {
      throw_read_failure(folder, error);
    }
    check_checksum(folder, name, record, checksum);
  }
}

std::vector<CheckpointEntry> list_checkpoints(FileSystem& file_system, const std::filesystem::path& directory) {
  std::vector<CheckpointEntry> found;
  for (int listing = 0; listing < kMaxListings && found.empty(); ++listing) {
    const auto names = file_system.entries(directory);
    if (names.empty()) break;
    for (const auto& name : names) {
      const auto step = checkpoint_step(directory, name);
      if (!step) continue;
      auto entry = read_entry(file_system, directory / name, *step);
      if (!entry.failure || !is_gone(entry.folder)) found.push_back(std::move(entry));
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& left, const auto& right) {
    return std::pair(left.manifest.sequence, left.step) > std::pair(right.manifest.sequence, right.step);
  });
  return found;
}

std::filesystem::path find_checkpoint(FileSystem& file_system, const std::filesystem::path& directory, int64_t step) {
  const auto folder = directory / folder_name(step);
  if (!is_gone(folder)) return folder;
  try {
    for (const auto& name : file_system.entries(directory)) {
      if (checkpoint_step(directory, name) == step) return directory / name;
    }
  } catch (const std::system_error&) {
    // The error is reported when the folder is opened.
  }
  return folder;
}

int64_t last_sequence(FileSystem& file_system, const std::filesystem::path& directory) {
  int64_t last = 0;
  bool is_complete = true;
  for (const auto& name : file_system.entries(directory)) {
    if (!checkpoint_step(directory, name)) continue;
    try {
      last = std::max(last, read_manifest_only(file_system, directory / name).sequence);
    } catch (const UnreadableCheckpoint&) {
      is_complete = false;
    } catch (const DamagedCheckpoint&) {
      // The entry is not counted.
    }
  }
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() - kUnreadSequences;
  return is_complete || last > kMax ? last : last + kUnreadSequences;
}

}  // namespace ddp::storage
