#include "checkpoint/storage/set_aside.h"

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"

namespace ddp::storage {
namespace {

std::filesystem::path unused_folder(const std::vector<std::string>& entries, const std::filesystem::path& directory) {
  for (int n = 1;; ++n) {
    const auto name = "previous-" + std::to_string(n);
    if (std::find(entries.begin(), entries.end(), name) == entries.end()) return directory / name;
  }
}

}  // namespace

std::optional<std::filesystem::path> set_aside_checkpoints(FileSystem& file_system,
                                                           const std::filesystem::path& directory) {
  const auto checkpoints = list_checkpoints(file_system, directory);
  if (checkpoints.empty()) return std::nullopt;
  const auto entries = file_system.entries(directory);
  const auto aside = unused_folder(entries, directory);
  file_system.make_folder(aside);
  for (auto oldest = checkpoints.rbegin(); oldest != checkpoints.rend(); ++oldest) {
    file_system.rename(oldest->folder, aside / oldest->folder.filename());
  }
  if (std::find(entries.begin(), entries.end(), kLatestName) != entries.end()) {
    file_system.rename(directory / kLatestName, aside / kLatestName);
  }
  file_system.sync_folder(aside);
  file_system.sync_folder(directory);
  return aside;
}

}  // namespace ddp::storage
