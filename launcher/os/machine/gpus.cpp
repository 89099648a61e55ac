#include "launcher/os/machine/gpus.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace launcher {
namespace {

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// What names the device that an entry means; nothing when it means none.
std::optional<std::string> device_of(std::string_view entry, const std::vector<std::string>& uuids) {
  if (entry.starts_with("MIG-")) return std::string(entry);  // an instance of some GPU; the driver alone can check it
  if (entry.starts_with("GPU-")) {
    const auto matches = [&](const std::string& uuid) { return uuid.compare(0, entry.size(), entry) == 0; };
    if (std::count_if(uuids.begin(), uuids.end(), matches) != 1) return std::nullopt;
    return *std::find_if(uuids.begin(), uuids.end(), matches);
  }
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error != std::errc() || end != entry.data() + entry.size() || index >= uuids.size()) return std::nullopt;
  return uuids[index];
}

}  // namespace

std::vector<std::string> visible_gpu_uuids(const std::vector<std::string>& uuids, const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) return uuids;
  std::string_view left(cuda_visible_devices);
  std::vector<std::string> visible;
  while (true) {
    const std::size_t comma = left.find(',');
    auto device = device_of(trim(left.substr(0, comma)), uuids);
    if (!device) break;
    if (std::find(visible.begin(), visible.end(), *device) != visible.end()) return {};
    visible.push_back(std::move(*device));
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  return visible;
}

int visible_gpus(const std::vector<std::string>& uuids, const char* cuda_visible_devices) {
  return static_cast<int>(visible_gpu_uuids(uuids, cuda_visible_devices).size());
}

}  // namespace launcher
