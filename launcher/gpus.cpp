#include "launcher/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <set>

namespace launcher {
namespace {

// The few functions of nvml.h that are needed; all return 0 on success.
using Init = int (*)();
using GetCount = int (*)(unsigned*);
using GetHandle = int (*)(unsigned, void**);
using GetUuid = int (*)(void*, char*, unsigned);
using Shutdown = int (*)();

template <typename Function>
Function find_function(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

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

std::optional<std::vector<std::string>> installed_gpus() {
  const std::unique_ptr<void, int (*)(void*)> library(
      ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL),
      [](void* handle) { return handle == nullptr ? 0 : ::dlclose(handle); });
  if (!library) return std::nullopt;
  const auto init = find_function<Init>(library.get(), "nvmlInit_v2");
  const auto get_count = find_function<GetCount>(library.get(), "nvmlDeviceGetCount_v2");
  const auto get_handle = find_function<GetHandle>(library.get(), "nvmlDeviceGetHandleByIndex_v2");
  const auto get_uuid = find_function<GetUuid>(library.get(), "nvmlDeviceGetUUID");
  const auto shutdown = find_function<Shutdown>(library.get(), "nvmlShutdown");
  if (init == nullptr || get_count == nullptr || get_handle == nullptr || get_uuid == nullptr || init() != 0)
    return std::nullopt;

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
  if (shutdown != nullptr) shutdown();
  return uuids;
}

int visible_gpus(const std::vector<std::string>& uuids, const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) return static_cast<int>(uuids.size());
  std::string_view left(cuda_visible_devices);
  std::set<std::string> seen;
  while (true) {
    const std::size_t comma = left.find(',');
    const auto device = device_of(trim(left.substr(0, comma)), uuids);
    if (!device) break;
    if (!seen.insert(*device).second) return 0;
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  return static_cast<int>(seen.size());
}

}  // namespace launcher
