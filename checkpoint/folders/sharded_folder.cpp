#include "checkpoint/folders/sharded_folder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/folders/uncommitted_folder.h"
#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/shards/block_file.h"
#include "checkpoint/shards/lost_content.h"
#include "checkpoint/shards/shard_files.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/file_checksum.h"
#include "checkpoint/storage/inventory.h"

namespace ddp {
namespace {

using shards::BlockChecksums;
using shards::owner;
using storage::FileRecord;
using storage::FileSystem;

constexpr std::string_view kEnding = ".safetensors";

// The names of the shards contain the number of ranks, and it must be the manifest's. A file that would be ignored,
// because it is of no rank or because its part is there as a whole too, is refused: it may be the one that was meant.
void check_ranks(const std::filesystem::path& folder, const storage::Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    if (shards::is_of_no_rank(name)) {
      storage::throw_damaged(
          folder, std::string(storage::kManifestName) + " lists " + name + ", which is not the file of any rank");
    }
    const auto shard = shards::parse_shard_file_name(name);
    if (shard && manifest.files.contains(shard->part)) {
      storage::throw_damaged(folder,
                             std::string(storage::kManifestName) + " lists both " + shard->part + " and " + name);
    }
    if (!shard || shard->ranks == manifest.world_size) continue;
    storage::throw_damaged(folder, std::string(storage::kManifestName) + " has world_size " +
                                       std::to_string(manifest.world_size) + ", but " + name + " is of " +
                                       std::to_string(shard->ranks) + " ranks");
  }
}

// Whether the file exists; throws when its size is not the recorded one.
bool check_shard_size(FileSystem& file_system, const std::filesystem::path& folder,
                      const std::vector<std::string>& files, const std::string& name, const FileRecord& record) {
  const auto path = folder / name;
  std::error_code ignored;
  uint64_t size = 0;
  try {
    size = file_system.size(file_system.open(path), path);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) return false;
    const auto status = std::filesystem::status(path, ignored);
    if (error.code() == std::errc::too_many_symbolic_link_levels ||
        (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))) {
      storage::throw_damaged(folder, name + owner(name) + " is not a regular file; it held " +
                                         shards::content_of_lost(file_system, folder, files, name));
    }
    storage::throw_read_failure(folder, error);
  }
  if (size == record.size) return true;
  const shards::LostBytes bytes{
      .files = files, .file = name, .begin = size, .end = record.size, .written = record.size};
  const auto lacks = shards::tensors_between(file_system, folder, bytes);
  storage::throw_damaged(
      folder, name + owner(name) + " has " + std::to_string(size) + " bytes, but " + std::to_string(record.size) +
                  " were written; " +
                  (lacks.empty() ? "it held " + shards::content_of_lost(file_system, folder, files, name)
                                 : "it lacks " + lacks));
}

storage::Bytes verified_file(FileSystem& file_system, const std::filesystem::path& folder, const std::string& name,
                             const FileRecord& record) {
  const auto path = folder / name;
  try {
    const auto file = file_system.open(path);
    storage::check_size(file_system, file, folder, name, record);
    auto bytes = storage::map_file(file_system, file, path);
    storage::check_checksum(folder, name, record, crc32c(bytes.view));
    return bytes;
  } catch (const std::system_error& error) {
    storage::throw_read_failure(folder, error);
  }
}

std::set<std::string> names_of(const storage::Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& [name, record] : manifest.files) names.insert(name);
  return names;
}

BlockChecksums block_checksums(FileSystem& file_system, const std::filesystem::path& folder,
                               const storage::Manifest& manifest) {
  const auto found = manifest.files.find(shards::kBlockChecksumsFile);
  if (found == manifest.files.end()) {
    storage::throw_damaged(
        folder, std::string("its files hold chunks of tensors, but there is no ") + shards::kBlockChecksumsFile);
  }
  const auto bytes = verified_file(file_system, folder, found->first, found->second);
  try {
    return shards::parse_block_checksums(bytes.view);
  } catch (const std::invalid_argument& error) {
    storage::throw_damaged(folder, error.what());
  }
}

std::unique_ptr<ChunkedPart> read_part(FileSystem& file_system, const std::filesystem::path& folder,
                                       const std::vector<std::string>& files,
                                       const std::shared_ptr<const BlockChecksums>& checksums) {
  return std::make_unique<ChunkedPart>(ChunkedPart{
      .catalog = shards::read_shard_headers(file_system, folder, files, *checksums), .checksums = checksums});
}

// The file names contain the number of ranks: the file of each rank must exist.
void check_all_present(FileSystem& file_system, const std::filesystem::path& folder,
                       const std::vector<std::string>& files) {
  const auto ranks = shards::parse_shard_file_name(files.front())->ranks;
  const auto part = shards::parse_shard_file_name(files.front())->part;
  const std::set<std::string> present(files.begin(), files.end());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto name = shards::shard_file_name(part, rank, ranks);
    if (present.contains(name)) continue;
    storage::throw_damaged(folder, name + owner(name) + " is missing; it held " +
                                       shards::content_of_lost(file_system, folder, files, name));
  }
}

// "shard-00002-model-00001-of-00001.safetensors", as Python writes it.
bool is_python_shard(std::string_view name) {
  return name.starts_with("shard-") && name.ends_with(kEnding);
}

}  // namespace

bool has_shards(const storage::Manifest& manifest) {
  return std::ranges::any_of(manifest.files, [](const auto& item) {
    return shards::parse_shard_file_name(item.first) || shards::is_of_no_rank(item.first);
  });
}

bool is_folder_of_shards(const std::filesystem::path& folder) {
  FileSystem file_system;
  bool is_found = false;
  for (const auto& name : file_system.entries(folder)) {
    if (name == storage::kManifestName || name.ends_with(".index.json")) return false;
    is_found = is_found || is_python_shard(name) || shards::parse_shard_file_name(name).has_value();
  }
  return is_found;
}

bool is_sharded_folder(FileSystem& file_system, const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return false;
  if (dcp::is_dcp_folder(folder)) return true;
  refuse_uncommitted(folder);
  if (is_folder_of_shards(folder)) return true;
  return storage::is_there(folder / storage::kManifestName) &&
         has_shards(storage::read_manifest_only(file_system, folder));
}

ShardedFolder open_sharded_folder(FileSystem& file_system, const std::filesystem::path& folder) {
  if (dcp::is_dcp_folder(folder)) return open_dcp_folder(file_system, folder);
  if (is_folder_of_shards(folder)) return open_folder_of_shards(file_system, folder);
  return open_sharded_checkpoint(file_system, folder, storage::read_manifest_only(file_system, folder));
}

ShardedFolder open_sharded_checkpoint(FileSystem& file_system, const std::filesystem::path& folder,
                                      storage::Manifest manifest) {
  check_ranks(folder, manifest);
  ShardedFolder opened{.kind = "sharded checkpoint"};
  const auto names = names_of(manifest);
  const auto by_part = shards::shard_files_by_part(names);
  const auto checksums = std::make_shared<const BlockChecksums>(block_checksums(file_system, folder, manifest));
  for (const auto& [part, files] : by_part) {
    for (const auto& file : files) check_shard_size(file_system, folder, files, file, manifest.files.at(file));
    for (const auto& file : files) {
      if (!checksums->contains(file)) {
        storage::throw_damaged(folder, std::string(shards::kBlockChecksumsFile) + " does not have " + file);
      }
    }
    opened.parts[part] = read_part(file_system, folder, files, checksums);
  }
  for (const auto& [name, record] : manifest.files) {
    if (shards::parse_shard_file_name(name) || name == shards::kBlockChecksumsFile) continue;
    opened.files[name] = verified_file(file_system, folder, name, record);
  }
  opened.manifest = std::move(manifest);
  return opened;
}

ShardedFolder open_folder_of_shards(FileSystem& file_system, const std::filesystem::path& folder) {
  ShardedFolder opened{.kind = "folder of safetensors shards"};
  std::vector<std::string> python;
  std::set<std::string> others;
  for (const auto& name : file_system.entries(folder)) {
    if (is_python_shard(name)) {
      python.push_back(name);
    } else if (shards::parse_shard_file_name(name)) {
      others.insert(name);
    } else if (name.ends_with(kEnding)) {
      opened.skipped[name] = "a file that is not one of the shards";
    }
  }
  const auto checksums = std::make_shared<const BlockChecksums>();
  for (const auto& [part, files] : shards::shard_files_by_part(others)) {
    check_all_present(file_system, folder, files);
    opened.parts[part] = read_part(file_system, folder, files, checksums);
  }
  if (python.empty()) return opened;
  if (!opened.parts.empty()) {
    throw std::runtime_error(folder.string() + " holds shards of two kinds: " + python.front() + " and " +
                             *others.begin());
  }
  // A missing last file cannot be noticed: Python's writer stores neither whole shapes nor the number of ranks.
  opened.kind = "folder of Python's safetensors shards, which does not say how many there were";
  opened.parts["model.safetensors"] = read_part(file_system, folder, python, checksums);
  return opened;
}

storage::Failure describe_damage(FileSystem& file_system, const std::filesystem::path& folder,
                                 storage::Failure failure) {
  if (failure.kind != storage::FailureKind::kDamaged) return failure;
  try {
    auto manifest = storage::read_manifest_only(file_system, folder);
    if (has_shards(manifest)) open_sharded_checkpoint(file_system, folder, std::move(manifest));
  } catch (const storage::DamagedCheckpoint& error) {
    return storage::failure_from(error);
  } catch (const std::exception&) {
    // The failure that is known is enough.
  }
  return failure;
}

void verify_sharded_checkpoint(FileSystem& file_system, const std::filesystem::path& folder,
                               const storage::Manifest& manifest) {
  check_ranks(folder, manifest);
  const auto checksums = block_checksums(file_system, folder, manifest);
  const auto by_part = shards::shard_files_by_part(names_of(manifest));
  shards::ReadBuffer buffer;
  for (const auto& [name, record] : manifest.files) {
    uint32_t checksum = 0;
    std::vector<std::string> files;  // of the same part
    try {
      if (const auto blocks = checksums.find(name); blocks != checksums.end()) {
        if (const auto shard = shards::parse_shard_file_name(name)) files = by_part.at(shard->part);
        check_shard_size(file_system, folder, files, name, record);
        const shards::BlockFile file(file_system, folder / name, &blocks->second);
        file.read(0, record.size, buffer,
                  [&](uint64_t, std::string_view bytes) { checksum = crc32c(bytes.data(), bytes.size(), checksum); });
      } else {
        checksum = storage::file_checksum(file_system, folder / name, record.size);
      }
    } catch (const shards::DamagedBytes& error) {
      const shards::LostBytes bytes{
          .files = files, .file = name, .begin = error.begin(), .end = error.end(), .written = record.size};
      throw storage::DamagedCheckpoint(error.what() + owner(name) + lost_bytes_text(file_system, folder, bytes));
    } catch (const std::system_error& error) {
      storage::throw_read_failure(folder, error);
    }
    storage::check_checksum(folder, name, record, checksum);
  }
}

}  // namespace ddp
