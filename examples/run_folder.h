// The checkpoints of one training run: <folder>/step-00000001 and so on, one per finished epoch.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace examples {

/// Makes room for a new run: moves an earlier run's checkpoints into `<folder>/previous-<n>` and returns that folder.
/// One process does this for all.
inline std::optional<std::filesystem::path> set_aside_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> checkpoints;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      if (name.starts_with("step-") || name == "latest") checkpoints.push_back(entry.path());
    }
  }
  if (checkpoints.empty()) return std::nullopt;
  std::filesystem::path aside;
  for (int n = 1; aside.empty(); ++n) {
    const auto candidate = folder / ("previous-" + std::to_string(n));
    if (std::filesystem::create_directory(candidate)) aside = candidate;
  }
  for (const auto& checkpoint : checkpoints) std::filesystem::rename(checkpoint, aside / checkpoint.filename());
  return aside;
}

}  // namespace examples
