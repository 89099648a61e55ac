#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "launcher/local/processes/file_timer.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/in_child.h"
#include "tests/launcher/remembered_messages.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

std::string request(pid_t pid, const std::string& scope, double expiration, int signal) {
  return R"({"version": 1, "pid": )" + std::to_string(pid) + R"(, "scope_id": ")" + scope +
         R"(", "expiration_time": )" + std::to_string(expiration) + R"(, "signal": )" + std::to_string(signal) + "}\n";
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void write_text(int pipe, std::string_view text) {
  if (::write(pipe, text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw std::runtime_error("write");
}

// A process that waits for a signal.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }
  // Waits for the end, and says by which signal.
  int end_signal() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    return info.si_code == CLD_KILLED ? info.si_status : 0;
  }

 private:
  pid_t pid_;
};

}  // namespace

TEST_CASE("FileTimer: a request is read") {
  const auto found = parse_timer_request(
      R"({"version": 1, "pid": 4711, "scope_id": "step \u00e9", "expiration_time": 1700000000.25, "signal": 9})");
  REQUIRE(found);
  CHECK(found->pid == 4711);
  CHECK(found->scope == "step \xc3\xa9");
  CHECK(found->expiration == 1700000000.25);
  CHECK(found->signal == 9);
  CHECK(parse_timer_request(R"({"pid": 2, "scope_id": "", "expiration_time": -1, "signal": 0})")->expiration == -1);
}

TEST_CASE("FileTimer: other lines are not requests") {
  for (const char* line :
       {"", "hello", "[]", "{}", "17", R"({"pid": "2", "scope_id": "a", "expiration_time": 1, "signal": 9})",
        R"({"pid": 2, "scope_id": 3, "expiration_time": 1, "signal": 9})",
        R"({"pid": 2, "scope_id": "a", "expiration_time": null, "signal": 9})",
        R"({"pid": 2, "scope_id": "a", "expiration_time": 1e999, "signal": 9})",
        R"({"pid": 2, "scope_id": "a", "expiration_time": 1})",
        // Numbers with which kill() would mean many processes, init, or no signal of Linux.
        R"({"pid": 1, "scope_id": "a", "expiration_time": 1, "signal": 9})",
        R"({"pid": 0, "scope_id": "a", "expiration_time": 1, "signal": 9})",
        R"({"pid": -5, "scope_id": "a", "expiration_time": 1, "signal": 9})",
        R"({"pid": 99999999999, "scope_id": "a", "expiration_time": 1, "signal": 9})",
        R"({"pid": 2, "scope_id": "a", "expiration_time": 1, "signal": 65})"}) {
    INFO(line);
    CHECK_FALSE(parse_timer_request(line));
  }
}

TEST_CASE("FileTimer: requests may come in pieces, and the earliest timer of a process counts") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder.path() / "timer";
  CHECK(in_child([&path]() -> std::string {
          EventLoop loop;
          RememberedMessages messages;
          FileTimer timer(loop, messages, path);
          const Sleeper sleeper;
          const Sleeper other;
          const UniqueFd pipe(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
          const std::string text = request(sleeper.pid(), "late", now() + 1000, SIGTERM) +
                                   request(sleeper.pid(), "early", now() - 1, SIGKILL) +
                                   request(other.pid(), "released", now() + 0.1, SIGKILL) +
                                   request(other.pid(), "released", -1, 0);
          write_text(pipe.get(), text.substr(0, 30));
          loop.run_once();
          write_text(pipe.get(), text.substr(30));
          while (messages.lines.empty()) loop.run_once();
          if (sleeper.end_signal() != SIGKILL) return "another signal";
          if (messages.lines.size() != 1) return "messages: " + std::to_string(messages.lines.size());
          if (timer.reason_for(sleeper.pid()) != "ddprun sent SIGKILL because the file timer 'early' expired") {
            return timer.reason_for(sleeper.pid());
          }
          if (!timer.reason_for(other.pid()).empty()) return "a reason for a process that lives";
          timer.forget_all();
          return timer.reason_for(sleeper.pid()).empty() ? "as expected" : "not forgotten";
        }) == "as expected");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("FileTimer: the pipe replaces one that nobody reads, and nothing else") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder.path() / "timer";
  EventLoop loop;
  RememberedMessages messages;
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  {
    const FileTimer timer(loop, messages, path);
    CHECK_THROWS_AS(FileTimer(loop, messages, path), LaunchError);
    CHECK(std::filesystem::is_fifo(path));
  }
  REQUIRE(::symlink("elsewhere", path.c_str()) == 0);
  CHECK_THROWS_AS(FileTimer(loop, messages, path), LaunchError);
  CHECK(std::filesystem::is_symlink(path));
}

}  // namespace launcher
