// Finds places where the host waits for a GPU.
#pragma once

#include <dlfcn.h>

#include "tests/support/catch.h"

namespace ddp::test {

/// While it lives, an operation of any thread that makes the host wait for a stream throws; Python's
/// torch.cuda.set_sync_debug_mode("error"). Events may be waited for.
class NoGpuWaits {
 public:
  NoGpuWaits() {
    // c10::cuda::warning_state(), without linking CUDA, which ddprun loads at run time.
    mode_ = static_cast<int*>(dlsym(RTLD_DEFAULT, "_ZZN3c104cuda13warning_stateEvE14warning_state_"));
    REQUIRE(mode_ != nullptr);
    *mode_ = 2;
  }
  ~NoGpuWaits() { *mode_ = 0; }
  NoGpuWaits(const NoGpuWaits&) = delete;
  NoGpuWaits& operator=(const NoGpuWaits&) = delete;

 private:
  int* mode_ = nullptr;
};

}  // namespace ddp::test
