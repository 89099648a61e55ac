#include "launcher/watch/watched_rank.h"

#include <signal.h>

namespace launcher {

int stack_signal() {
  constexpr int kAboveFirst = 12;
  return SIGRTMIN + kAboveFirst;
}

}  // namespace launcher
