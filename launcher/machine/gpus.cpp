#include "launcher/machine/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace launcher {
namespace {

// The few functions of nvml.h that are needed; all return 0 on success.
using Init = int (*)();
using GetCount = int (*)(unsigned*);
using GetHandle = int (*)(unsigned, void**);
using GetUuid = int (*)(void*, char*, unsigned);
using GetVersion = int (*)(char*, unsigned);
using Shutdown = int (*)();

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

// The driver's library, initialised.
class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto init = find<Init>("nvmlInit_v2");
    is_ready_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (const auto shutdown = is_ready_ ? find<Shutdown>("nvmlShutdown") : nullptr) shutdown();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_ready() const { return is_ready_; }
  // Null when this version of the library has no such function.
  template <typename Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }

 private:
  void* library_;
  bool is_ready_ = false;
};

}  // namespace

std::optional<std::vector<std::string>> installed_gpus() {
  const Nvml nvml;
  if (!nvml.is_ready()) return std::nullopt;
  const auto get_count = nvml.find<GetCount>("nvmlDeviceGetCount_v2");
  const auto get_handle = nvml.find<GetHandle>("nvmlDeviceGetHandleByIndex_v2");
  const auto get_uuid = nvml.find<GetUuid>("nvmlDeviceGetUUID");
  if (get_count == nullptr || get_handle == nullptr || get_uuid == nullptr) return std::nullopt;

  std::vector<std::string> uuids;
  unsigned count = 0;
  if (get_count(&count) != 0) count = 0;
  for (unsigned index = 0; index < count; ++index) {
    void* device = nullptr;
    std::array<char, 128> uuid{};
    // A device that the container may not use is counted by the driver but has no handle.
    if (get_handle(index, &device) == 0 && get_uuid(device, uuid.data(), uuid.size() - 1) == 0)
      uuids.emplace_back(uuid.data());
  }
  return uuids;
}

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

std::optional<std::string> gpu_driver_version() {
  const Nvml nvml;
  if (!nvml.is_ready()) return std::nullopt;
  const auto get_version = nvml.find<GetVersion>("nvmlSystemGetDriverVersion");
  std::array<char, 96> version{};
  if (get_version == nullptr || get_version(version.data(), version.size() - 1) != 0) return std::nullopt;
  return version.data();
}

}  // namespace launcher
