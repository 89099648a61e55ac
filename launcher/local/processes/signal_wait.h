// Whether a process waits for a signal by sigwait(): its masks in /proc do not say so.
#pragma once

#include <sys/types.h>

namespace launcher {

// True when a thread of `pid` is in sigwait, sigwaitinfo or sigtimedwait for the signal. False also where the kernel
// does not let us look: it lets the ancestors of a process.
bool is_in_sigwait(pid_t pid, int signal_number);

}  // namespace launcher
