#include "launcher/os/system/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/joined.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

// Handled in addition to the signals that stop the job.
constexpr std::array kForwarded = {SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};

// Blocked but not handled. SIGPIPE: a write to a closed reader must be an error, not the end of the process. SIGTTOU,
// SIGTTIN: the supervisor is not in the terminal's foreground group, and can write only if they are blocked. SIGXFSZ: a
// file at the size limit (ulimit -f) must be an error, too.
constexpr std::array kBlockedWithoutHandler = {SIGPIPE, SIGTTOU, SIGTTIN, SIGXFSZ};

bool is_ignored(int signal_number) {
  struct sigaction action {};
  return ::sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

std::string signal_name(int signal_number) {
  const char* abbreviation = ::sigabbrev_np(signal_number);
  if (abbreviation != nullptr) return std::string("SIG") + abbreviation;
  return "signal " + std::to_string(signal_number);
}

std::optional<int> signal_number(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    const char* abbreviation = ::sigabbrev_np(number);
    if (abbreviation != nullptr && name == abbreviation) return number;
  }
  return std::nullopt;
}

std::vector<int> default_stop_signals() {
  return {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
}

std::string signal_list(const std::vector<int>& signals) {
  return ddp::detail::joined(signals, ",", signal_name);
}

bool SignalSource::is_stop(int signal_number) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signal_number) != stop_signals_.end();
}

SignalSource::SignalSource(std::vector<int> stop_signals) : stop_signals_(std::move(stop_signals)) {
  sigset_t handled;
  ::sigemptyset(&handled);
  ::sigaddset(&handled, SIGCHLD);
  const auto handle = [&handled](int number) {
    if (!is_ignored(number)) ::sigaddset(&handled, number);
  };
  std::for_each(stop_signals_.begin(), stop_signals_.end(), handle);
  std::for_each(kForwarded.begin(), kForwarded.end(), handle);
  sigset_t blocked = handled;
  for (int number : kBlockedWithoutHandler) ::sigaddset(&blocked, number);
  ::sigprocmask(SIG_BLOCK, &blocked, &original_mask_);
  // An ignored SIGCHLD would make the kernel reap the ranks before their status is read.
  if (is_ignored(SIGCHLD)) ::signal(SIGCHLD, SIG_DFL);
  fd_.reset(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw LaunchError(std::string("cannot create a signal descriptor: ") + std::strerror(errno));
}

std::optional<signalfd_siginfo> SignalSource::next() {
  signalfd_siginfo info{};
  while (true) {
    const ssize_t bytes = ::read(fd_.get(), &info, sizeof info);
    if (bytes == sizeof info) return info;
    if (bytes < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

}  // namespace launcher
