// The functions of the driver's management library that are used; all return 0 on success. It is loaded only in
// processes made for it: it leaves threads that receive the program's signals, and it can hang or crash.
#pragma once

#include <dlfcn.h>

namespace launcher {

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    is_ready_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (const auto shutdown = is_ready_ ? find<int (*)()>("nvmlShutdown") : nullptr) shutdown();
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

}  // namespace launcher
