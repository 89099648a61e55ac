#include "comm/shm/processor_choice.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace ddp::shm {
namespace {

bool has(const cpu_set_t& processors, int processor) {
  return processor >= 0 && processor < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(processor), &processors);
}

void remove(int processor, cpu_set_t& processors) {
  if (processor >= 0 && processor < CPU_SETSIZE) CPU_CLR(static_cast<size_t>(processor), &processors);
}

// Of those that `usable` has; empty if it has only `own`.
cpu_set_t target_cpus(const cpu_set_t& usable, int own, int preferred, const std::vector<int>& occupied) {
  cpu_set_t others = usable;
  remove(own, others);
  cpu_set_t free = others;
  for (const int processor : occupied) remove(processor, free);
  if (CPU_COUNT(&free) == 0) return others;
  if (!has(free, preferred)) return free;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(preferred), &one);
  return one;
}

}  // namespace

bool MovePause::may_move(Time now) {
  if (std::exchange(has_moved_, false)) {
    const bool was_good = now - moved_at_ >= kMinUsefulStay;
    pause_ = was_good ? kMinPause : std::min(kMaxPause, 2 * pause_);
    if (!was_good) not_before_ = now + pause_;
  }
  return now >= not_before_;
}

void MovePause::moved(Time now) {
  has_moved_ = true;
  moved_at_ = now;
}

int current_processor() {
  return sched_getcpu();
}

bool move_to_other_processor(int preferred, const std::vector<int>& occupied) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return false;  // more processors than the set has bits
  const cpu_set_t there = target_cpus(usable, current_processor(), preferred, occupied);
  if (CPU_COUNT(&there) == 0 || sched_setaffinity(0, sizeof there, &there) != 0) return false;
  // Fails only where the kernel itself has given the thread another set meanwhile.
  sched_setaffinity(0, sizeof usable, &usable);
  return true;
}

}  // namespace ddp::shm
