#include "launcher/observe/watch/top_command.h"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "base/terminal_size.h"
#include "launcher/observe/watch/stack_command.h"
#include "launcher/observe/watch/top_screen.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr auto kRefresh = std::chrono::seconds(1);

// A terminal that delivers each key at once. The destructor restores its state. Signals that end a program can be read
// from fd().
class KeyTerminal {
 public:
  KeyTerminal() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::sigaddset(&signals, number);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC));
    is_terminal_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!is_terminal_) return;
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  ~KeyTerminal() {
    if (is_terminal_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  KeyTerminal(const KeyTerminal&) = delete;
  KeyTerminal& operator=(const KeyTerminal&) = delete;

  // Handles the keys that are pressed until `end`. Returns false when the program must end.
  bool wait(TopState& state, Clock::time_point end) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    std::array<pollfd, 2> polled{pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = is_terminal_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
    if (::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0)
      return true;
    if (polled[0].revents != 0) return false;
    std::array<char, 64> bytes{};
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count <= 0) return false;  // the terminal is gone
    std::string_view keys(bytes.data(), static_cast<std::size_t>(count));
    while (!keys.empty()) {
      const bool is_sequence = keys.size() >= 3 && keys.starts_with("\x1b[");
      const std::size_t last = is_sequence ? keys.find_first_not_of("0123456789;", 2) : 0;
      const std::size_t length = last == std::string_view::npos ? keys.size() : last + 1;
      press_key(state, keys.substr(0, length));
      keys.remove_prefix(length);
    }
    return !state.quits;
  }

 private:
  UniqueFd signals_;
  termios before_{};
  bool is_terminal_ = false;
};

void draw(const std::vector<FoundJob>& found, const TopState& state) {
  std::vector<ordered_json> jobs;
  std::vector<std::string> problems;
  for (const FoundJob& job : found) {
    if (!job.problem.empty()) problems.push_back(printable("ddprun: " + job.problem));
    auto document = ordered_json::parse(job.document, nullptr, /*allow_exceptions=*/false);
    if (document.is_object()) jobs.push_back(std::move(document));
  }
  const auto [columns, rows] = ddp::detail::terminal_size(STDOUT_FILENO);
  std::string text = "\x1b[H\x1b[2J";
  std::string separator;
  for (const std::string& line : top_screen(jobs, problems, state, columns, rows)) {
    text += separator + line;
    separator = "\r\n";
  }
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw LaunchError("cannot write to standard output");
  }
}

// The stacks of the job that is shown first.
std::vector<std::string> shown_stacks(const std::vector<FoundJob>& found) {
  std::string socket;
  for (const FoundJob& job : found) {
    if (!job.problem.empty()) continue;
    const auto document = ordered_json::parse(job.document, nullptr, /*allow_exceptions=*/false);
    const bool hangs = document.is_object() && document.value("hang", ordered_json()).is_object();
    if (socket.empty() || hangs) socket = job.socket;
    if (hangs) break;
  }
  if (socket.empty()) return {"no job answers"};
  const StackReply reply = ask_for_stacks(socket, "");
  std::vector<std::string> lines;
  std::string_view left = reply.problem.empty() ? reply.text : reply.problem;
  while (!left.empty()) {
    lines.emplace_back(left.substr(0, left.find('\n')));
    left.remove_prefix(std::min(left.size(), lines.back().size() + 1));
  }
  return lines;
}

}  // namespace

void run_top(const std::string& job, JobScope scope) {
  const KeyTerminal terminal;
  TopState state;
  auto found = find_jobs(job, scope);
  while (!found.empty()) {
    const auto end = Clock::now() + kRefresh;
    while (Clock::now() < end) {
      draw(found, state);
      if (!terminal.wait(state, end)) return;
      if (!std::exchange(state.wants_stacks, false)) continue;
      state.stacks = shown_stacks(found);
    }
    found = find_jobs(job, scope);
  }
}

}  // namespace launcher
