#include "launcher/os/machine/gpu_information.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

namespace launcher {
namespace {

// Returns the text after "name:" and spaces.
std::string value_after(std::string_view line) {
  const std::size_t colon = line.find(':');
  const std::size_t first = line.find_first_not_of(" \t", colon + 1);
  return first == std::string_view::npos ? std::string() : std::string(line.substr(first));
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Returns the UUID of the device to which an entry refers; nothing if no device matches.
std::optional<std::string> device_of(std::string_view entry, const std::vector<std::string>& uuids) {
  if (entry.starts_with("MIG-")) return std::string(entry);  // only the driver can check a MIG instance
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

std::vector<GpuInformation> driver_gpus(const std::string& folder) {
  std::vector<GpuInformation> gpus;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    GpuInformation gpu{.bus_id = entry.path().filename().string()};
    std::ifstream file(entry.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) gpu.model = value_after(line);
      if (line.starts_with("GPU UUID:")) gpu.uuid = value_after(line);
    }
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(), [](const auto& a, const auto& b) { return a.bus_id < b.bus_id; });
  return gpus;
}

std::string visible_entry(const char* cuda_visible_devices, int index) {
  if (cuda_visible_devices == nullptr) return std::to_string(index);
  std::string_view left(cuda_visible_devices);
  for (int i = 0;; ++i) {
    const std::size_t comma = left.find(',');
    std::string_view entry = left.substr(0, comma);
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    if (entry.empty() || entry.front() == '-') return {};
    if (i == index) return std::string(entry);
    if (comma == std::string_view::npos) return {};
    left.remove_prefix(comma + 1);
  }
}

const GpuInformation* find_gpu(const std::vector<GpuInformation>& gpus, std::string_view entry) {
  if (entry.starts_with("GPU-")) {
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const auto& g) { return g.uuid.starts_with(entry); });
    return found == gpus.end() ? nullptr : &*found;
  }
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc() || end != entry.data() + entry.size() || number >= gpus.size()) return nullptr;
  return &gpus[number];
}

std::string describe_gpu(const std::vector<GpuInformation>& gpus, const std::string& entry) {
  const GpuInformation* gpu = find_gpu(gpus, entry);
  if (gpu == nullptr) return entry.starts_with("GPU-") || entry.starts_with("MIG-") ? entry : "GPU " + entry;
  const std::string index = std::to_string(gpu - gpus.data());
  if (gpu->model.empty() && gpu->uuid.empty()) return "GPU " + index;
  return "GPU " + index + " (" + gpu->model + (gpu->model.empty() || gpu->uuid.empty() ? "" : ", ") + gpu->uuid + ")";
}

}  // namespace launcher
