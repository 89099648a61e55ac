#include "checkpoint/storage/set_aside.h"

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"

namespace ddp::storage {
namespace {

std::string folder_name(int number) {
  return "previous-" + std::to_string(number);
}

// 0 if no entry has a number.
int newest_number(const std::vector<std::string>& entries) {
  int number = 0;
  while (std::find(entries.begin(), entries.end(), folder_name(number + 1)) != entries.end()) ++number;
  return number;
}

}  // namespace

std::optional<std::filesystem::path> set_aside_checkpoints(FileSystem& file_system,
                                                           const std::filesystem::path& directory) {
  const auto checkpoints = list_checkpoints(file_system, directory);
  if (checkpoints.empty()) return std::nullopt;
  const auto entries = file_system.entries(directory);
  const auto aside = directory / folder_name(newest_number(entries) + 1);
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

std::optional<std::filesystem::path> newest_set_aside(FileSystem& file_system, const std::filesystem::path& directory) {
  const int number = newest_number(file_system.entries(directory));
  if (number == 0) return std::nullopt;
  return directory / folder_name(number);
}

}  // namespace ddp::storage
