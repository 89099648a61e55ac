// A rank that finds out how long something holds it up: `gap_program FOLDER THREADS`. It wakes each 10 ms and has so
// many other threads that sleep. FOLDER/gaps.RANK has a line for each 100 ms that it was late in: when they began, by
// the steady clock, how late it was at most, and the processor time that its main thread took; each in microseconds.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/base/progress.h>

#include "base/progress/own_page.h"

namespace {

constexpr std::int64_t kPause = 10'000;
constexpr std::int64_t kWindow = 100'000;

std::int64_t microseconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000 + time.tv_nsec / 1'000;
}

void wait_for_ever(std::mutex& mutex) {
  const std::lock_guard lock(mutex);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* rank = std::getenv("RANK");
  std::ofstream gaps(std::string(argv[1]) + "/gaps." + (rank != nullptr ? rank : "0"));
  ddp::detail::own_page();
  std::mutex mutex;
  mutex.lock();
  for (int i = 0; i < std::atoi(argv[2]); ++i) std::thread([&] { wait_for_ever(mutex); }).detach();
  std::int64_t begin = microseconds(CLOCK_MONOTONIC);
  std::int64_t processor = microseconds(CLOCK_THREAD_CPUTIME_ID);
  std::int64_t latest = 0;
  while (true) {
    const std::int64_t before = microseconds(CLOCK_MONOTONIC);
    std::this_thread::sleep_for(std::chrono::microseconds(kPause));
    const std::int64_t now = microseconds(CLOCK_MONOTONIC);
    latest = std::max(latest, now - before - kPause);
    if (now - begin < kWindow) continue;
    ddp::progress::step();
    const std::int64_t used = microseconds(CLOCK_THREAD_CPUTIME_ID);
    gaps << begin << ' ' << latest << ' ' << used - processor << std::endl;
    begin = now;
    processor = used;
    latest = 0;
  }
}
