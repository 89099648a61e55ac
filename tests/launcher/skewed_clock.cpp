// A machine whose clock is wrong by SKEWED_CLOCK_SECONDS, and was started SKEWED_STEADY_SECONDS earlier, for a program
// that is started with this library in LD_PRELOAD.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, time);
  const char* skew = std::getenv("SKEWED_CLOCK_SECONDS");
  if (result == 0 && clock == CLOCK_REALTIME && skew != nullptr) time->tv_sec += std::atol(skew);
  const char* steady = std::getenv("SKEWED_STEADY_SECONDS");
  const bool is_steady = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW;
  if (result == 0 && is_steady && steady != nullptr) time->tv_sec += std::atol(steady);
  return static_cast<int>(result);
}
