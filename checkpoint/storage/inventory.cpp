#include "checkpoint/storage/inventory.h"

#include <algorithm>
#include <system_error>

#include "checkpoint/storage/file_checksum.h"
#include "checkpoint/storage/folder_names.h"

namespace ddp::storage {
namespace {

[[noreturn]] void fail(const std::filesystem::path& folder, const std::string& reason) {
  throw DamagedCheckpoint("the checkpoint " + folder.string() + " is damaged: " + reason);
}

std::string read_text(FileSystem& file_system, const std::filesystem::path& path) {
  const auto file = file_system.open(path);
  const auto size = file_system.size(file, path);
  if (size > kMaxManifestBytes) throw ManifestError("it has " + std::to_string(size) + " bytes");
  std::string text(size, '\0');
  file_system.read(file, text.data(), text.size(), 0, path);
  return text;
}

}  // namespace

Manifest read_manifest(FileSystem& file_system, const std::filesystem::path& folder) {
  Manifest manifest;
  try {
    manifest = parse_manifest(read_text(file_system, folder / kManifestName));
  } catch (const ManifestError& error) {
    fail(folder, std::string(kManifestName) + ": " + error.what());
  } catch (const std::system_error& error) {
    fail(folder, error.what());
  }
  for (const auto& [name, record] : manifest.files) {
    uint64_t size = 0;
    try {
      const auto file = file_system.open(folder / name);
      size = file_system.size(file, folder / name);
    } catch (const std::system_error& error) {
      fail(folder, error.what());
    }
    if (size != record.size) {
      fail(folder,
           name + " has " + std::to_string(size) + " bytes, but " + std::to_string(record.size) + " were written");
    }
  }
  return manifest;
}

void verify_files(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& manifest) {
  for (const auto& [name, record] : manifest.files) {
    uint32_t checksum = 0;
    try {
      checksum = file_checksum(file_system, folder / name, record.size);
    } catch (const std::system_error& error) {
      fail(folder, error.what());
    }
    if (checksum != record.crc32c) {
      fail(folder, "the bytes of " + name + " are not those that were written (CRC32C)");
    }
  }
}

std::vector<CheckpointEntry> list_checkpoints(FileSystem& file_system, const std::filesystem::path& directory) {
  std::vector<CheckpointEntry> found;
  for (const auto& name : file_system.entries(directory)) {
    const auto step = step_of(name);
    if (!step) continue;
    auto& entry = found.emplace_back(CheckpointEntry{.step = *step, .folder = directory / name});
    try {
      entry.manifest = read_manifest(file_system, entry.folder);
      if (entry.manifest.step != *step) {
        fail(entry.folder, "its manifest belongs to step " + std::to_string(entry.manifest.step));
      }
    } catch (const DamagedCheckpoint& error) {
      entry.damage = error.what();
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& left, const auto& right) { return left.step > right.step; });
  return found;
}

}  // namespace ddp::storage
