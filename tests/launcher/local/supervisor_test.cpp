#include "launcher/local/processes/supervisor.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/job_status.h"
#include "launcher/plan/outcome/notices.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Clock = EventLoop::Clock;

struct SaidBySupervisor : Messages {
  void print(std::string_view line) override { text.append(line).append("\n"); }
  void print_lines(std::string_view lines) override { text.append(lines); }
  std::string text;
};

// A process in the guardian's place, beside the supervisor's.
class Bystander {
 public:
  Bystander() : pid_(::fork()) {
    if (pid_ != 0) return;
    while (true) ::pause();
  }
  ~Bystander() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// An attempt with shells as ranks. All of it is in the supervisor's process.
class Attempt {
 public:
  Attempt(const ddp::test::TemporaryFolder& folder, pid_t guardian) : folder_(folder), guardian_pipe_(make_pipe()) {
    options_.no_prefix = true;
    options_.working_folder = folder.path().string();
    options_.standard_input.to = StandardInput::To::kNone;
    options_.grace = 60s;
    guarded_.emplace(SupervisorContext{.signals = signals_,
                                       .guardian_pipe = std::move(guardian_pipe_.reader),
                                       .terminal_input = {},
                                       .cgroup = nullptr,
                                       .guardian = guardian,
                                       .guardian_group = guardian});
  }
  ~Attempt() {
    supervisor_.reset();
    for (const ProcessIdentity& process : descendants_of(::getpid())) signal_process(process, SIGKILL);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  Supervisor& make(const std::string& script) {
    streams_.emplace(loop_, options_, "id", folder_.path().string(), -1, ::getpgrp());
    streams_->begin_attempt(0, options_.nproc_per_node);
    SupervisorOptions options{.options = &options_};
    options.workers.program = {.file = "/bin/sh", .arguments = {"sh", "-c", script}, .shell_arguments = {}};
    options.workers.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    options.workers.start.options = &options_;
    options.workers.start.mask = signals_.original_mask();
    ::getrlimit(RLIMIT_NOFILE, &options.workers.start.open_files);
    options.on_stop = [this](const FailureNotice& notice) { note_stop(notice); };
    options.on_failure = [this](const JobEnd& end, std::size_t first) { note_stop(notice_of_failure(end, first)); };
    options.on_rank_start = [this](const RankPlace&, pid_t) { ++started_; };
    options.on_rank_end = [this](const RankEnd& end) { order_ += std::to_string(end.rank) + " "; };
    return supervisor_.emplace(loop_, *guarded_, said_, *streams_, std::move(options));
  }
  void note_stop(const FailureNotice& notice) {
    stops_ += notice.text.substr(0, notice.text.find(" on host")) + " / " + std::to_string(notice.exit_status) + "; ";
    if (notice.text.starts_with("ddprun on host")) stops_ = "told, " + std::to_string(notice.exit_status) + "; ";
  }
  std::vector<RankPlan> plans() const {
    std::vector<RankPlan> plans;
    for (int rank = 0; rank < options_.nproc_per_node; ++rank) {
      plans.push_back({.place = {.rank = rank, .local_rank = rank, .world_size = options_.nproc_per_node},
                       .variables = {"RANK=" + std::to_string(rank)},
                       .error_file = folder_ / ("error." + std::to_string(rank))});
    }
    return plans;
  }
  // Calls `action` once the files are there.
  void when(std::vector<std::string> files, std::function<void()> action) {
    loop_.call_at(Clock::now() + 1ms, [this, files = std::move(files), action = std::move(action)]() mutable {
      const bool are_there =
          std::all_of(files.begin(), files.end(), [this](const std::string& name) { return has(name); });
      are_there ? action() : when(std::move(files), std::move(action));
    });
  }
  void in(Clock::duration time, std::function<void()> action) { loop_.call_at(Clock::now() + time, std::move(action)); }
  bool has(const std::string& name) const { return ::access((folder_ / name).c_str(), F_OK) == 0; }

  // The end in words.
  std::string run(const std::string& script) {
    make(script).start(plans());
    return wait();
  }
  std::string wait() {
    JobEnd end = supervisor_->wait();
    std::sort(end.ranks.begin(), end.ranks.end(), [](const RankEnd& a, const RankEnd& b) { return a.rank < b.rank; });
    std::string text;
    for (const RankEnd& rank : end.ranks) {
      text += std::to_string(rank.rank) + " " + describe_end(rank) + (rank.stop_requested ? " when told" : "") + ", ";
    }
    text += "status " + std::to_string(exit_status(end));
    if (end.stop_signal != 0) text += ", told by " + std::to_string(end.stop_signal);
    if (end.is_late()) text += ", late: " + end.timeout_reason;
    if (end.elsewhere) text += ", elsewhere: " + end.elsewhere->text;
    if (supervisor_->must_end_now()) text += ", impatient";
    if (!descendants_of(::getpid()).empty()) text += ", with processes left";
    return text;
  }

  const ddp::test::TemporaryFolder& folder_;
  EventLoop loop_;
  Options options_ = [] {
    Options options;
    options.nproc_per_node = 1;
    return options;
  }();
  SignalSource signals_{default_stop_signals()};
  Pipe guardian_pipe_;
  std::optional<SupervisorContext> guarded_;
  SaidBySupervisor said_;
  std::optional<RankStreams> streams_;
  std::optional<Supervisor> supervisor_;
  int started_ = 0;
  std::string order_;
  std::string stops_;
};

class SupervisorTest {
 protected:
  std::string attempt(int ranks, const std::function<std::string(Attempt&)>& body) const {
    return in_child([&] {
      Attempt attempt(folder_, bystander_.pid());
      attempt.options_.nproc_per_node = ranks;
      return body(attempt);
    });
  }
  std::string content(const std::string& name) const { return ddp::test::read_file(folder_ / name); }

  ddp::test::TemporaryFolder folder_;
  Bystander bystander_;
};

const std::string kWait = ": >ready.$RANK; while :; do sleep 0.01; done";

TEST_CASE_METHOD(SupervisorTest, "Supervisor: an attempt whose ranks end well has ended well") {
  CHECK(attempt(3, [](Attempt& attempt) {
          const std::string end = attempt.run("exit 0");
          return end + " / started " + std::to_string(attempt.started_) + attempt.stops_ + attempt.said_.text;
        }) == "0 ended normally, 1 ended normally, 2 ended normally, status 0 / started 3");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: the first failure stops the others, and its status counts") {
  CHECK(attempt(3,
                [](Attempt& attempt) {
                  const std::string end = attempt.run(
                      "trap 'exit 9' TERM; if [ $RANK = 1 ]; then while [ ! -e ready.0 ] || [ ! -e ready.2 ]; do sleep "
                      "0.01; done; exit 7; fi; " +
                      kWait);
                  return end + " / " + attempt.stops_ + attempt.order_.substr(0, 2);
                }) ==
        "0 exited with status 9 when told, 1 exited with status 7, 2 exited with status 9 when told, status 7 / "
        "rank 1 / 7; 1 ");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: ranks that hold out are killed after the grace time") {
  CHECK(attempt(2, [](Attempt& attempt) {
          attempt.options_.grace = 300ms;
          const auto begin = Clock::now();
          const std::string end = attempt.run(
              "trap '' TERM; if [ $RANK = 0 ]; then while [ ! -e ready.1 ]; do sleep 0.01; "
              "done; exit 7; fi; " +
              kWait);
          return Clock::now() - begin < 300ms ? "too early" : end;
        }) == "0 exited with status 7, 1 was killed by SIGKILL when told, status 7");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: a stop signal reaches each rank once, however often it comes") {
  CHECK(attempt(2, [](Attempt& attempt) {
          attempt.when({"ready.0", "ready.1"}, [&] {
            ::raise(SIGTERM);
            attempt.when({"got.0", "got.1"}, [&] {
              ::raise(SIGTERM);
              attempt.in(50ms, [&] {
                ::raise(SIGHUP);
                attempt.when({"hup.0", "hup.1"}, [&] { ddp::test::write_file(attempt.folder_ / "go", ""); });
              });
            });
          });
          const std::string end = attempt.run(
              "trap 'echo >>got.$RANK' TERM; trap 'echo >>hup.$RANK' HUP; : >ready.$RANK; while [ ! -e go ]; do sleep "
              "0.01; "
              "done; exit 0");  // not the status of a sleep that the signal has ended
          return end + " / " + attempt.stops_;
        }) == "0 ended normally when told, 1 ended normally when told, status 0, told by 15 / told, 143; ");
  for (const char* name : {"got.0", "got.1", "hup.0", "hup.1"}) CHECK(content(name) == "\n");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: a second interrupt kills, but not one that comes with the first") {
  CHECK(attempt(1, [](Attempt& attempt) {
          std::string early;
          attempt.when({"ready.0"}, [&] {
            ::raise(SIGINT);
            attempt.in(1ms, [&] { ::raise(SIGINT); });  // as timeout(1) signals a process and then its group
            attempt.in(60ms, [&] { early = attempt.order_; });
            attempt.when({"got"}, [&] { attempt.in(200ms, [] { ::raise(SIGINT); }); });
          });
          const std::string end = attempt.run("trap 'echo >>got' INT; " + kWait);
          return early + end + " / " + attempt.said_.text;
        }) == "0 was killed by SIGKILL when told, status 130, told by 2 / interrupted again: killed all processes\n");
  CHECK(content("got") == "\n");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: what ranks leave behind is asked to stop, and gone at the end") {
  CHECK(attempt(1, [](Attempt& attempt) {
          return attempt.run(
              "(trap 'echo >>asked; exit' TERM; : >ready; while :; do sleep 0.01; done) &\n"
              "setsid sleep 1000 & while [ ! -e ready ]; do sleep 0.01; done; exit 0");
        }) == "0 ended normally, status 0");
  CHECK(content("asked") == "\n");
}

TEST_CASE_METHOD(SupervisorTest,
                 "Supervisor: what does not want to go is killed after the grace time, and it is said what for") {
  CHECK_THAT(
      attempt(1,
              [](Attempt& attempt) {
                attempt.options_.grace = 1'300ms;
                const std::string end = attempt.run(
                    "setsid sh -c 'trap \"\" TERM; : >ready; while :; do sleep 1; done' &\n"
                    "while [ ! -e ready ]; do sleep 0.01; done; exit 3");
                return end + " / " + attempt.said_.text;
              }),
      StartsWith("0 exited with status 3, status 3 / waiting up to 1 s for processes that the ranks left running to "
                 "stop; Ctrl-C kills at once"));
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: daemons may be kept, and are then left alone") {
  CHECK(attempt(1, [](Attempt& attempt) {
          attempt.options_.keep_daemons = true;
          return attempt.run(
              "setsid sh -c 'trap \": >asked\" TERM; : >ready; while :; do sleep 0.01; done' &\n"
              "while [ ! -e ready ]; do sleep 0.01; done; exit 0");
        }) == "0 ended normally, status 0, with processes left");
  CHECK(content("asked").empty());
  CHECK(::access((folder_ / "asked").c_str(), F_OK) != 0);
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: without its guardian it kills everything, and waits for nobody") {
  CHECK(attempt(2,
                [](Attempt& attempt) {
                  attempt.when({"ready.0", "ready.1"}, [&] { attempt.guardian_pipe_.writer.reset(); });
                  const std::string end = attempt.run("trap '' TERM; setsid sleep 1000 & " + kWait);
                  return end + " / " + attempt.said_.text;
                }) ==
        "0 was killed by SIGKILL when told, 1 was killed by SIGKILL when told, status 0, impatient / one of its "
        "processes was killed; all ranks have been killed\n");
}

TEST_CASE_METHOD(SupervisorTest,
                 "Supervisor: another node's failure, or the time, stops the ranks; the first reason counts") {
  CHECK(attempt(1, [](Attempt& attempt) {
          attempt.when({"ready.0"}, [&] {
            attempt.supervisor_->stop_because({.node = 3, .exit_status = 44, .text = "rank 9 failed"});
            attempt.supervisor_->stop_on_timeout("the time was over");
          });
          return attempt.run(kWait) + " / " + attempt.stops_;
        }) == "0 was killed by SIGTERM when told, status 44, elsewhere: rank 9 failed / ");
  CHECK(attempt(1, [](Attempt& attempt) {
          attempt.when({"ready.0"}, [&] {
            attempt.supervisor_->stop_on_timeout("the time was over");
            attempt.supervisor_->stop_because({.node = 3, .exit_status = 44, .text = "rank 9 failed"});
          });
          return attempt.run(kWait);
        }) == "0 was killed by SIGTERM when told, status 124, late: the time was over");
}

TEST_CASE_METHOD(SupervisorTest,
                 "Supervisor: a rank that says that its peer went away does not hide how the peer ends") {
  CHECK(attempt(3,
                [](Attempt& attempt) {
                  const std::string end = attempt.run(
                      "if [ $RANK = 0 ]; then echo '{\"message\": \"Connection reset by peer\"}' >error.0; exit 1; fi\n"
                      "if [ $RANK = 1 ]; then trap '' TERM; while [ ! -e ready.2 ]; do sleep 0.01; done; sleep 0.3; "
                      "exit 7; fi\n" +
                      kWait);
                  return end + " / " + attempt.stops_;
                }) ==
        "0 exited with status 1, 1 exited with status 7, 2 was killed by SIGTERM when told, status 7 / rank 1 / 7; ");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: when nobody else fails, whoever lost its peer is the first after all") {
  CHECK(attempt(2, [](Attempt& attempt) {
          return attempt.run(
                     "if [ $RANK = 0 ]; then echo '{\"message\": \"Connection refused\"}' >error.0; exit 5; fi\n" +
                     kWait) +
                 " / " + attempt.stops_;
        }) == "0 exited with status 5, 1 was killed by SIGTERM when told, status 5 / rank 0 / 5; ");
}

TEST_CASE_METHOD(SupervisorTest,
                 "Supervisor: a program that cannot be executed stops the job with the shell's status") {
  CHECK(attempt(2, [](Attempt& attempt) {
          Supervisor& supervisor = attempt.make(kWait);
          std::vector<RankPlan> plans = attempt.plans();
          plans[1].program = Program{.file = "./missing", .arguments = {"missing"}, .shell_arguments = {}};
          supervisor.start(std::move(plans));
          return attempt.wait();
        }) == "0 was killed by SIGTERM when told, 1 exited with status 127, status 127");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: when a rank cannot be started, none is left") {
  CHECK(attempt(3, [](Attempt& attempt) {
          attempt.options_.log_folder = attempt.folder_ / "logs";
          attempt.options_.redirects = *StreamSelection::parse("3");
          Supervisor& supervisor = attempt.make(": >executed.$RANK");
          ddp::test::write_file(attempt.streams_->layout().attempt_folder(0) + "/1", "");
          try {
            supervisor.start(attempt.plans());
          } catch (const LaunchError&) {
            attempt.supervisor_.reset();
            const bool are_gone = comes_true([] { return descendants_of(::getpid()).empty(); });
            return std::string(are_gone && !attempt.has("executed.0") ? "none" : "some");
          }
          return std::string("no error");
        }) == "none");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: told to stop before any rank was started, it knows, and says so once") {
  CHECK(attempt(1, [](Attempt& attempt) {
          Supervisor& supervisor = attempt.make("exit 0");
          std::string text = supervisor.is_stopping() ? "stopping " : "running ";
          ::raise(SIGTERM);
          attempt.loop_.run_once();
          ::raise(SIGINT);
          attempt.loop_.run_once();
          text += supervisor.is_stopping() ? "stopping " : "running ";
          text +=
              std::to_string(supervisor.stop_signal()) + (supervisor.was_stop_requested() ? " told " : " not told ");
          return text + attempt.stops_;
        }) == "running stopping 15 told told, 143; ");
}

// A signal can come with the message that lets the ranks start.
TEST_CASE_METHOD(SupervisorTest,
                 "Supervisor: ranks that are started when the job is already being stopped are stopped") {
  CHECK(attempt(2, [](Attempt& attempt) {
          Supervisor& supervisor = attempt.make(kWait);
          ::raise(SIGTERM);
          attempt.loop_.run_once();
          supervisor.start(attempt.plans());
          return attempt.wait();
        }) == "0 was killed by SIGTERM when told, 1 was killed by SIGTERM when told, status 143, told by 15");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: ranks that are started when the guardian is gone already are killed") {
  const std::string end = attempt(1, [](Attempt& attempt) {
    Supervisor& supervisor = attempt.make("trap '' TERM; " + kWait);
    attempt.guardian_pipe_.writer.reset();
    attempt.loop_.run_once();
    supervisor.start(attempt.plans());
    return attempt.wait();
  });
  // On a busy machine SIGTERM comes before the rank ignores it.
  const std::string how = end.find("SIGTERM") == std::string::npos ? "SIGKILL" : "SIGTERM";
  CHECK(end == "0 was killed by " + how + " when told, status 0, impatient");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: after a failure a stop signal is known, but the failure counts") {
  CHECK(attempt(2, [](Attempt& attempt) {
          attempt.when({"asked.1"}, [&] {
            ::raise(SIGINT);
            attempt.when({"int.1"}, [&] { ddp::test::write_file(attempt.folder_ / "go", ""); });
          });
          const std::string end = attempt.run(
              "[ $RANK = 0 ] && { while [ ! -e ready.1 ]; do sleep 0.01; done; exit 6; }\n"
              "trap ': >asked.1' TERM; trap ': >int.1' INT; : >ready.1; while [ ! -e go ]; do sleep 0.01; done\n"
              "exit 0");  // not the status of a sleep that the signal has ended
          return end + (attempt.supervisor_->was_stop_requested() ? " / told " : " / ") +
                 std::to_string(attempt.supervisor_->stop_signal());
        }) == "0 exited with status 6, 1 ended normally when told, status 6 / told 0");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: once it is done, one more signal says that nobody wants to wait") {
  CHECK(attempt(1, [](Attempt& attempt) {
          std::string text = attempt.run("exit 0");
          ::raise(SIGTERM);
          attempt.loop_.run_once();
          return text + (attempt.supervisor_->must_end_now() ? ", then impatient" : "");
        }) == "0 ended normally, status 0, then impatient");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: Ctrl-Z suspends the ranks and then the guardian, and fg continues both") {
  const std::string end = attempt(1, [this](Attempt& attempt) {
    const auto state = [](pid_t pid) { return identify(pid) ? identify(pid)->state : '?'; };
    std::string text;
    attempt.when({"ready.0"}, [&] {
      ::raise(SIGTSTP);
      attempt.in(1ms, [&] {
        const pid_t rank = attempt.supervisor_->running_ranks().begin()->first;
        text += comes_true([&] { return state(bystander_.pid()) == 'T'; }) ? "guardian stops, " : "";
        text += comes_true([&] { return state(rank) == 'T'; }) ? "rank stops, " : "";
        ::raise(SIGCONT);
        attempt.in(1ms, [&, rank] {
          text += comes_true([&] { return state(bystander_.pid()) == 'S'; }) ? "guardian goes on, " : "";
          text += comes_true([&] { return state(rank) != 'T'; }) ? "rank goes on, " : "";
          ddp::test::write_file(attempt.folder_ / "go", "");
        });
      });
    });
    const std::string ended = attempt.run("mkfifo go; : >ready.0; exec cat go");
    return text + ended;
  });
  CHECK(end == "guardian stops, rank stops, guardian goes on, rank goes on, 0 ended normally, status 0");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: a rank that is suspended when all are stopped still ends") {
  CHECK(attempt(2, [](Attempt& attempt) {
          attempt.when({"ready.0"}, [&] {
            for (const auto& [pid, rank] : attempt.supervisor_->running_ranks()) {
              if (rank == 0) ::kill(pid, SIGSTOP);
            }
            ddp::test::write_file(attempt.folder_ / "go", "");
          });
          return attempt.run("[ $RANK = 1 ] && { while [ ! -e go ]; do sleep 0.01; done; exit 4; }\n" + kWait);
        }) == "0 was killed by SIGTERM when told, 1 exited with status 4, status 4");
}

TEST_CASE_METHOD(SupervisorTest, "Supervisor: a rank's words and its error file are in how it ended") {
  CHECK(attempt(1, [](Attempt& attempt) {
          attempt.make("echo '{\"message\": \"my reason\", \"timestamp\": 1}' >error.0; kill -ABRT $$");
          attempt.supervisor_->start(attempt.plans());
          const JobEnd end = attempt.supervisor_->wait();
          return end.ranks.at(0).error ? end.ranks[0].error->message : std::string("no error");
        }) == "my reason");
}

}  // namespace
}  // namespace launcher
