#include "launcher/os/machine/gpu_information.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace launcher {
namespace {

// The text behind "name:" and blanks.
std::string value_behind(std::string_view line) {
  const std::size_t colon = line.find(':');
  const std::size_t first = line.find_first_not_of(" \t", colon + 1);
  return first == std::string_view::npos ? std::string() : std::string(line.substr(first));
}

}  // namespace

std::vector<GpuInformation> driver_gpus(const std::string& folder) {
  std::vector<GpuInformation> gpus;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    GpuInformation gpu{.bus_id = entry.path().filename().string()};
    std::ifstream file(entry.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) gpu.model = value_behind(line);
      if (line.starts_with("GPU UUID:")) gpu.uuid = value_behind(line);
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
