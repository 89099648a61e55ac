// Signals as events: all signals that ddprun handles are blocked and read from a descriptor, so no code runs in a
// signal handler.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

// "SIGTERM"; "signal 77" for a number without a name.
std::string signal_name(int signal_number);
// Returns the number of "SIGTERM" or "TERM"; nothing when there is no such signal.
std::optional<int> signal_number(std::string_view name);

// The signals that stop a job unless the user names others; the same as torchrun's.
std::vector<int> default_stop_signals();
// "SIGTERM,SIGINT", in the form of TORCHELASTIC_SIGNALS_TO_HANDLE.
std::string signal_list(const std::vector<int>& signals);

// Blocks the signals that ddprun handles and makes them readable. Signals that were ignored when ddprun started (nohup)
// stay ignored. The mask remains until the process ends: a Ctrl-C at the end must not replace the exit status.
class SignalSource {
 public:
  // `stop_signals` end the job. Other signals of that kind keep their default effect: they end ddprun at once.
  explicit SignalSource(std::vector<int> stop_signals);
  ~SignalSource() = default;
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int fd() const { return fd_.get(); }
  std::optional<signalfd_siginfo> next();                           // nothing when none is pending
  const sigset_t& original_mask() const { return original_mask_; }  // for the children
  bool is_stop(int signal_number) const;

 private:
  std::vector<int> stop_signals_;
  sigset_t original_mask_{};
  UniqueFd fd_;
};

}  // namespace launcher
