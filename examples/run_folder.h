// The checkpoints of one training run: <folder>/epoch-0000.safetensors and so on, one per finished epoch.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

namespace examples {

inline std::filesystem::path epoch_file(const std::filesystem::path& folder, int64_t epoch) {
  char name[64];
  std::snprintf(name, sizeof(name), "epoch-%04lld.safetensors", static_cast<long long>(epoch));
  return folder / name;
}

/// The checkpoint of the highest epoch, if there is any.
inline std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder) {
  std::optional<std::filesystem::path> newest;
  long long highest = -1;
  if (!std::filesystem::is_directory(folder)) return newest;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    long long epoch = -1;
    if (std::sscanf(name.c_str(), "epoch-%lld", &epoch) != 1 || epoch <= highest) continue;
    if (name != epoch_file("", epoch).string()) continue;  // temporary files, for example
    highest = epoch;
    newest = entry.path();
  }
  return newest;
}

/// Makes room for a new run: moves an earlier run's checkpoints into `<folder>/previous-<n>` and returns that folder.
/// One process does this for all.
inline std::optional<std::filesystem::path> set_aside_checkpoints(const std::filesystem::path& folder) {
  std::optional<std::filesystem::path> aside;
  while (const auto checkpoint = newest_checkpoint(folder)) {
    for (int n = 1; !aside; ++n) {
      const auto candidate = folder / ("previous-" + std::to_string(n));
      if (std::filesystem::create_directory(candidate)) aside = candidate;
    }
    std::filesystem::rename(*checkpoint, *aside / checkpoint->filename());
  }
  return aside;
}

}  // namespace examples
