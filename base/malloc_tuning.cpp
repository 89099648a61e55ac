#include "base/malloc_tuning.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
#include <malloc.h>
#endif

namespace ddp {
namespace {

#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
// Records whether tune_malloc() was applied: malloc settings are process-wide, and glibc has no function that reads
// them.
std::atomic<bool>& is_tuned() {
  static std::atomic<bool> tuned = false;
  return tuned;
}
#endif

}  // namespace

void tune_malloc() {
#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
  const char* choice = std::getenv("DDPRUN_MALLOPT");
  if (choice != nullptr && std::string_view(choice) == "0") return;
  constexpr int kMmapThresholdBytes = 32 << 20;  // the maximum that glibc accepts on 64-bit machines
  constexpr int kTrimThresholdBytes = 1 << 30;
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes);
  is_tuned() = true;
#endif
}

FreedMemoryReturns::FreedMemoryReturns() {
#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
  constexpr int kDefaultBytes = 128 << 10;  // the initial value in glibc, which raises it later
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr) return;
  mallopt(M_MMAP_THRESHOLD, kDefaultBytes);
  mallopt(M_TRIM_THRESHOLD, kDefaultBytes);
  malloc_trim(0);  // otherwise free memory at the top of the heap would be used for blocks that should be mapped
#endif
}

FreedMemoryReturns::~FreedMemoryReturns() {
#if defined(__GLIBC__) && !defined(DDPRUN_NO_MALLOPT)
  if (is_tuned()) tune_malloc();
#endif
}

}  // namespace ddp
