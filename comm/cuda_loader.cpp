#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "comm/cuda_plugin.h"
#include "comm/cuda_presence.h"

namespace ddp::detail {

namespace {

struct Loaded {
  const CudaPlugin* plugin = nullptr;
  std::string why;
};

Loaded load() {
  Loaded loaded;
#ifdef DDPRUN_WITH_CUDA
  loaded.why = why_no_cuda(process_environment(), [](const char* path) { return access(path, F_OK) == 0; });
  if (!loaded.why.empty()) return loaded;
  const char* name = std::getenv("DDPRUN_CUDA_PLUGIN");
  // RTLD_GLOBAL: libtorch_cuda's symbols must be visible to whatever the program loads later.
  void* library = dlopen(name != nullptr ? name : "libddprun_comm_cuda.so", RTLD_NOW | RTLD_GLOBAL);
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
#else
  loaded.why = "this build of ddprun has no CUDA";
#endif
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

// Before main: LibTorch remembers "no CUDA" after the first question about it, so libtorch_cuda has to be there before
// the program's own code runs.
[[gnu::constructor]] void load_before_main() {
  loaded();
}

}  // namespace

const CudaPlugin* cuda_plugin(std::string* why) {
  if (why != nullptr) *why = loaded().why;
  return loaded().plugin;
}

}  // namespace ddp::detail
