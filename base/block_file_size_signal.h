// Makes a write beyond the limit on file sizes (RLIMIT_FSIZE) fail with an error code instead of ending the process.
#pragma once

#include <signal.h>

#include <ctime>

namespace ddp::detail {

// The kernel sends SIGXFSZ to a thread that writes beyond RLIMIT_FSIZE; the default action ends the process. An object
// of this class blocks the signal for the calling thread, so that the call fails with EFBIG instead. A SIGXFSZ that was
// already pending stays pending.
class BlockFileSizeSignal {
 public:
  BlockFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~BlockFileSizeSignal() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockFileSizeSignal(const BlockFileSizeSignal&) = delete;
  BlockFileSizeSignal& operator=(const BlockFileSizeSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace ddp::detail
