#include "launcher/observe/watch/busy_loop.h"

#include <algorithm>
#include <utility>

#include "launcher/observe/watch/process_state.h"

namespace launcher {
namespace {

// The most waits in a second of processor time. A rank that trains on a CPU has thousands. A loop in Python may
// sometimes wait for the interpreter's lock.
constexpr double kMaxWaitsPerSecond = 20;
constexpr double kMinWaitLimit = 3;

std::uint64_t growth(std::uint64_t before, std::uint64_t now) {
  return now - std::min(before, now);
}

}  // namespace

void BusyLoop::update(const std::vector<pid_t>& family, std::uint64_t faults) {
  std::map<pid_t, Thread> threads;
  std::uint64_t most_ticks = 0;
  std::uint64_t waits = 0;  // waits of the thread that has computed most
  for (const pid_t process : family) {
    for (const pid_t id : thread_numbers(process)) {
      const auto state = process_stat(id);
      if (!state) continue;
      const Thread before = threads_[id];
      const Thread now{.ticks = state->cpu_ticks, .waits = voluntary_switches(id)};
      threads[id] = now;
      if (growth(before.ticks, now.ticks) <= most_ticks) continue;
      most_ticks = growth(before.ticks, now.ticks);
      waits = growth(before.waits, now.waits);
    }
  }
  const auto few =
      static_cast<std::uint64_t>(std::max(kMinWaitLimit, kMaxWaitsPerSecond * seconds_of_ticks(most_ticks)));
  loops_ = is_known_ && most_ticks > 0 && waits < few && growth(faults_, faults) < few;
  threads_ = std::move(threads);
  faults_ = faults;
  is_known_ = true;
}

}  // namespace launcher
