#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "comm/backends/cuda_plugin.h"
#include "comm/core/cuda_devices.h"
#include "comm/core/cuda_presence.h"
#include "comm/core/graph_capture.h"

namespace ddp::detail {

namespace {

struct Loaded {
  const CudaPlugin* plugin = nullptr;
  std::string why;
};

const Loaded& loaded_plugin();

#ifdef DDPRUN_WITH_CUDA
// Loads the libtorch_cuda.so from the folder of the libtorch_cpu.so that is in use.
void load_libtorch_cuda() {
  void* cpu_half = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (cpu_half == nullptr) return;
  link_map* place = nullptr;
  if (dlinfo(cpu_half, RTLD_DI_LINKMAP, &place) == 0) {
    const std::string path = place->l_name;
    dlopen((path.substr(0, path.rfind('/') + 1) + "libtorch_cuda.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  dlclose(cpu_half);
}

// Null on failure; dlerror() has the reason. A prebuilt CUDA part has no run path, since it is built without knowing
// the folder of the program's LibTorch.
void* open_cuda_part() {
  const char* name = std::getenv("DDPRUN_CUDA_PLUGIN");
  if (name == nullptr) name = "libddprun_comm_cuda.so";
  // RTLD_GLOBAL: libraries that the program loads later must find libtorch_cuda's symbols.
  if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
  load_libtorch_cuda();
  return dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}
#endif

Loaded load() {
  Loaded loaded;
#ifdef DDPRUN_WITH_CUDA
  loaded.why = why_no_cuda(process_environment(), [](const char* path) { return access(path, F_OK) == 0; });
  if (!loaded.why.empty()) return loaded;
  void* library = open_cuda_part();
  if (library == nullptr) {
    loaded.why = std::string("the CUDA part could not be loaded: ") + dlerror();
    return loaded;
  }
  void* entry = dlsym(library, "ddprun_cuda_plugin");
  if (entry == nullptr) {
    loaded.why = "libddprun_comm_cuda.so has no entry point: it belongs to another version of ddprun";
    return loaded;
  }
  loaded.plugin = reinterpret_cast<decltype(&ddprun_cuda_plugin)>(entry)();
  set_capture_probe([] { return loaded_plugin().plugin->is_capturing(); });
#else
  loaded.why = "this build of ddprun has no CUDA";
#endif
  return loaded;
}

const Loaded& loaded_plugin() {
  static const Loaded once = load();
  return once;
}

// LibTorch remembers the answer to the first question about CUDA, which manual_seed() and every backward ask.
void require_in_time() {
  static const bool late = c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
                           c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0 && !at::globalContext().hasCUDA();
  if (!late) return;
  throw std::runtime_error(
      "CUDA was requested too late: this program asked LibTorch about CUDA earlier (torch::manual_seed, "
      "torch::cuda::is_available and a backward do), and LibTorch has recorded that there is no CUDA. Link "
      "ddprun::cuda, or "
      "ddprun::ddp without the target property DDPRUN_CUDA OFF; or call init_process_group first; or train on the CPU "
      "with backend 'gloo' or DDPRUN_CUDA=0.");
}

}  // namespace

const CudaPlugin* cuda_plugin(std::string* why) {
  if (why != nullptr) *why = loaded_plugin().why;
  if (loaded_plugin().plugin != nullptr) require_in_time();
  return loaded_plugin().plugin;
}

const CudaPlugin& require_cuda(const RankInfo& info, const std::string& purpose) {
  std::string why;
  const CudaPlugin* plugin = cuda_plugin(&why);
  if (plugin == nullptr) throw std::invalid_argument(who(info) + ": " + purpose + " needs CUDA: " + why);
  return *plugin;
}

void preload_cuda() {
  loaded_plugin();
}

int cuda_device_count() {
  return cuda_plugin() == nullptr ? 0 : c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
}

}  // namespace ddp::detail
