#include "base/malloc_tuning.h"

#include <cstdlib>
#include <string_view>

#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
#include <malloc.h>
#endif

namespace ddp {

void tune_malloc() {
#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
  const char* choice = std::getenv("DDPRUN_MALLOPT");
  if (choice != nullptr && std::string_view(choice) == "0") return;
  constexpr int kMmapThresholdBytes = 32 << 20;  // glibc refuses more on 64-bit machines
  constexpr int kTrimThresholdBytes = 1 << 30;
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes);
#endif
}

}  // namespace ddp
