#include "launcher/local/processes/worker_group.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using ddp::test::ElementsAre;

// Shells as ranks, in a folder of the test.
class WorkerGroupTest {
 protected:
  WorkerGroupTest() {
    options_.no_prefix = true;
    options_.working_folder = folder_.path().string();
    options_.standard_input.to = StandardInput::To::kNone;
  }
  ~WorkerGroupTest() {
    if (group_) group_->kill_all();
    group_.reset();
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  WorkerGroup& make(const std::string& script) {
    streams_.emplace(loop_, options_, "id", folder_.path().string(), -1, ::getpgrp());
    streams_->begin_attempt(0, 16);
    WorkerGroupOptions options;
    options.program = {.file = "/bin/sh", .arguments = {"sh", "-c", script}, .shell_arguments = {}};
    options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    options.start.options = &options_;
    ::sigemptyset(&options.start.mask);
    ::getrlimit(RLIMIT_NOFILE, &options.start.open_files);
    return group_.emplace(loop_, *streams_, std::move(options),
                          [this](std::size_t index) { events_.push_back(index); });
  }
  // When the group goes, so do its ranks, whatever they were doing.
  void expect_all_killed_with_group() {
    std::vector<pid_t> pids;
    for (const Worker& worker : group_->workers()) pids.push_back(worker.process.pid);
    group_.reset();
    for (const pid_t pid : pids) {
      int status = 0;
      REQUIRE(::waitpid(pid, &status, 0) == pid);
      CHECK(WTERMSIG(status) == SIGKILL);
    }
  }
  std::vector<RankPlan> plans(int count, int first_rank = 0) const {
    std::vector<RankPlan> plans;
    for (int i = 0; i < count; ++i) {
      const int rank = first_rank + i;
      plans.push_back({.place = {.rank = rank, .local_rank = i, .world_size = 16, .local_world_size = count},
                       .variables = {"RANK=" + std::to_string(rank)},
                       .error_file = folder_ / ("error." + std::to_string(rank))});
    }
    return plans;
  }
  WorkerGroup& start(const std::string& script, int count = 1) {
    WorkerGroup& group = make(script);
    group.fork(plans(count));
    group.open_gate();
    return group;
  }
  // The ends of so many workers, in the order in which the group told of them; each is reaped.
  std::vector<RankEnd> ends(std::size_t count) {
    std::vector<RankEnd> ends;
    comes_true([&] {
      loop_.call_at(EventLoop::Clock::now() + 1ms, [] {});
      loop_.run_once();
      for (const std::size_t index : std::exchange(events_, {})) {
        auto end = group_->end_of(index);
        if (!end) continue;
        ends.push_back(*end);
        group_->reap(index);
      }
      return ends.size() >= count;
    });
    REQUIRE(ends.size() == count);
    return ends;
  }
  bool has(const std::string& name) const {
    return comes_true([&] { return ::access((folder_ / name).c_str(), F_OK) == 0; });
  }
  std::string content(const std::string& name) const { return ddp::test::read_file(folder_ / name); }

  ddp::test::TemporaryFolder folder_;
  EventLoop loop_;
  Options options_ = [] {
    Options options;
    options.nproc_per_node = 1;
    return options;
  }();
  std::optional<RankStreams> streams_;
  std::vector<std::size_t> events_;
  std::optional<WorkerGroup> group_;
};

TEST_CASE_METHOD(WorkerGroupTest,
                 "WorkerGroup: nobody executes before the gate opens, then all do with their variables") {
  WorkerGroup& group = make("echo $RANK >rank.$RANK");
  group.fork(plans(3, 5));
  CHECK(group.running() == 3);
  CHECK(folder_.is_empty());
  group.open_gate();
  for (const RankEnd& end : ends(3)) {
    CHECK(end.exit_code == 0);
    CHECK_FALSE(end.failed());
    CHECK(end.rank == end.local_rank + 5);
    CHECK(content("rank." + std::to_string(end.rank)) == std::to_string(end.rank) + "\n");
  }
  CHECK(group.running() == 0);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: how each worker ended is told, in the order in which they ended") {
  start("while [ ! -e go.$RANK ]; do sleep 0.01; done; [ $RANK = 1 ] && kill -SEGV $$; exit $((RANK * 10))", 3);
  std::vector<RankEnd> all;
  for (const int rank : {2, 0, 1}) {
    ddp::test::write_file(folder_ / ("go." + std::to_string(rank)), "");
    all.push_back(ends(1)[0]);
  }
  CHECK(all[0].rank == 2);
  CHECK(all[0].exit_code == 20);
  CHECK(all[0].signal == 0);
  CHECK(all[1].rank == 0);
  CHECK_FALSE(all[1].failed());
  CHECK(all[2].rank == 1);
  CHECK(all[2].signal == SIGSEGV);
  CHECK(all[2].exit_code == 0);
  CHECK(all[2].failed());
  CHECK(all[0].time <= all[1].time);
  CHECK(all[1].time <= all[2].time);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: there is no end while a worker runs, and none once it is reaped") {
  WorkerGroup& group = start("while [ ! -e go ]; do sleep 0.01; done");
  CHECK_FALSE(group.end_of(0));
  const pid_t pid = group[0].process.pid;
  CHECK(group.find(pid) == 0U);
  ddp::test::write_file(folder_ / "go", "");
  CHECK(comes_true([&] { return group.end_of(0).has_value(); }));
  CHECK(group.end_of(0));  // as often as one asks
  CHECK(group.find(pid) == 0U);
  CHECK(group.running() == 1);
  group.reap(0);
  CHECK_FALSE(group.end_of(0));
  CHECK_FALSE(group.find(pid));
  CHECK(group.running() == 0);
  CHECK(group.running_ranks().empty());
  CHECK(::kill(pid, 0) == -1);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: the running ranks are known by their processes") {
  WorkerGroup& group = make("[ $RANK = 8 ] || exec sleep 1000");
  group.fork(plans(3, 7));
  group.open_gate();
  ends(1);
  const std::map<pid_t, int> expected = {{group[0].process.pid, 7}, {group[2].process.pid, 9}};
  CHECK(group.running_ranks() == expected);
  CHECK_FALSE(group.find(::getpid()));
  CHECK_FALSE(group.find(0));
}

TEST_CASE_METHOD(WorkerGroupTest,
                 "WorkerGroup: a program that cannot be executed is told from one that says so itself") {
  WorkerGroup& group = make("exit 127");
  std::vector<RankPlan> all = plans(4);
  all[1].program = Program{.file = (folder_ / "missing").string(), .arguments = {"missing"}, .shell_arguments = {}};
  ddp::test::write_file(folder_ / "text", "#!/no/such/interpreter\n");
  ::chmod((folder_ / "text").c_str(), 0700);
  all[2].program = Program{.file = (folder_ / "text").string(), .arguments = {"text"}, .shell_arguments = {}};
  all[3].program = Program{.file = folder_.path().string(), .arguments = {"folder"}, .shell_arguments = {}};
  group.fork(std::move(all));
  group.open_gate();
  for (const RankEnd& end : ends(4)) {
    CAPTURE(end.rank);
    CHECK(end.exit_code == (end.rank == 3 ? 126 : 127));
    CHECK(end.was_executed == (end.rank == 0));
    CHECK(end.error.has_value() == (end.rank != 0));
    if (end.rank == 2) CHECK_THAT(end.error->message, ContainsSubstring("interpreter"));
  }
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: when one cannot be started, none is left of those before") {
  options_.log_folder = folder_ / "logs";
  options_.redirects = *StreamSelection::parse("3");
  WorkerGroup& group = make(": >executed.$RANK");
  const std::string attempt = streams_->layout().attempt_folder(0);
  ddp::test::write_file(attempt + "/2", "in the place of the third rank's folder");
  CHECK_THROWS_AS(group.fork(plans(4)), LaunchError);
  CHECK(group.workers().size() == 2);
  expect_all_killed_with_group();
  for (const char* name : {"executed.0", "executed.1"}) CHECK(::access((folder_ / name).c_str(), F_OK) != 0);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: too few descriptors to watch all leave none running either") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  WorkerGroup& group = make(": >executed.$RANK");
  // Room for the gate and little more.
  const UniqueFd probe(::dup(0));
  const rlimit few{.rlim_cur = static_cast<rlim_t>(probe.get()) + 2, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::string error;
  try {
    group.fork(plans(8));
  } catch (const LaunchError& caught) {
    error = caught.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK_THAT(error, ContainsSubstring("ulimit -n"));
  expect_all_killed_with_group();
  CHECK(::access((folder_ / "executed.0").c_str(), F_OK) != 0);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: a worker that is killed at the gate has ended so, and the others run") {
  WorkerGroup& group = make(": >executed.$RANK");
  group.fork(plans(2));
  ::kill(group[0].process.pid, SIGKILL);
  CHECK(ends(1)[0].signal == SIGKILL);
  group.open_gate();
  const RankEnd end = ends(1)[0];
  CHECK(end.rank == 1);
  CHECK_FALSE(end.failed());
  CHECK(has("executed.1"));
  CHECK(::access((folder_ / "executed.0").c_str(), F_OK) != 0);
}

TEST_CASE_METHOD(WorkerGroupTest,
                 "WorkerGroup: a signal reaches all that a rank has in its group, and no other rank's") {
  WorkerGroup& group = start(
      "trap 'echo >>got.$RANK' USR1\n"
      "(trap 'echo >below.$RANK; exit' USR1; : >ready.$RANK; while :; do sleep 0.01; done) &\n"
      "while [ ! -e below.$RANK ]; do sleep 0.01; done; [ $RANK = 0 ] && exit\nwhile :; do sleep 0.01; done",
      2);
  REQUIRE(has("ready.0"));
  REQUIRE(has("ready.1"));
  group.signal_all(SIGUSR1);
  CHECK(has("got.0"));
  CHECK(comes_true([&] { return content("got.1") == "\n"; }));  // before the next: pending signals of a kind are one
  CHECK(has("below.0"));
  CHECK(has("below.1"));
  CHECK(ends(1)[0].rank == 0);
  group.signal_all(SIGUSR1);  // one is gone
  CHECK(comes_true([&] { return content("got.1") == "\n\n"; }));
  CHECK(content("got.0") == "\n");
}

TEST_CASE_METHOD(WorkerGroupTest,
                 "WorkerGroup: who is asked to stop is told so, even while suspended, and who had ended is not") {
  WorkerGroup& group =
      start("[ $RANK = 0 ] && exit 3; trap 'exit 5' TERM; : >ready.$RANK; while :; do sleep 0.01; done", 2);
  CHECK_FALSE(ends(1)[0].stop_requested);
  REQUIRE(has("ready.1"));
  ::kill(group[1].process.pid, SIGSTOP);
  REQUIRE(comes_true([&] { return identify(group[1].process.pid)->state == 'T'; }));
  Orphans orphans(nullptr);
  group.ask_all_to_stop(SIGTERM, orphans);
  const RankEnd end = ends(1)[0];
  CHECK(end.stop_requested);
  CHECK(end.exit_code == 5);
  CHECK_FALSE(group[0].stop_requested);
}

TEST_CASE_METHOD(WorkerGroupTest,
                 "WorkerGroup: what a dead leader left in its group can be asked and killed until it is reaped") {
  WorkerGroup& group = start(
      "for i in 1 2; do (trap ': >asked.$i; exit' TERM; [ $i = 2 ] && trap '' TERM\n: >ready.$i\n"
      "while :; do sleep 0.01; done) & done\nwhile [ ! -e ready.1 ] || [ ! -e ready.2 ]; do sleep 0.01; done; exit 1");
  REQUIRE(comes_true([&] { return group.end_of(0).has_value(); }));
  Orphans orphans(nullptr);
  group.ask_to_stop(0, SIGTERM, orphans);
  CHECK(has("asked.1"));
  const pid_t leader = group[0].process.pid;
  group.kill(0);
  // The group is empty but for its dead leader.
  CHECK(comes_true([&] {
    for (const ProcessIdentity& process : descendants_of(1)) {
      if (process.group == leader) return false;
    }
    return true;
  }));
  group.reap(0);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: killing all counts as telling them to stop") {
  WorkerGroup& group = start("trap '' TERM INT; : >ready.$RANK; while :; do sleep 0.01; done", 2);
  REQUIRE(has("ready.0"));
  REQUIRE(has("ready.1"));
  group.kill_all();
  for (const RankEnd& end : ends(2)) {
    CHECK(end.signal == SIGKILL);
    CHECK(end.stop_requested);
  }
  group.kill_all();
  group.signal_all(SIGKILL);  // nobody
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: who runs and has written its error file is about to fail") {
  WorkerGroup& group = start("while [ ! -e go.$RANK ]; do sleep 0.01; done; exit 1", 2);
  CHECK_FALSE(group.is_any_ending());
  ddp::test::write_file(folder_ / "error.1", "");
  CHECK(group.is_any_ending());
  ddp::test::write_file(folder_ / "go.1", "");
  ends(1);
  CHECK_FALSE(group.is_any_ending());  // it has failed, the other does not show anything
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: the one that has the terminal is known") {
  WorkerGroup& group = make("exit 0");
  CHECK_FALSE(group.in_terminal());
  std::vector<RankPlan> all = plans(3);
  all[1].in_terminal = true;
  group.fork(std::move(all));
  CHECK(group.in_terminal() == 1U);
  group.open_gate();
  ends(3);
}

TEST_CASE_METHOD(WorkerGroupTest, "WorkerGroup: many workers are all watched") {
  constexpr int kMany = 64;
  options_.nproc_per_node = kMany;
  start("exit $RANK", kMany);
  std::vector<bool> seen(kMany);
  for (const RankEnd& end : ends(kMany)) {
    CHECK(end.exit_code == end.rank);
    seen[static_cast<std::size_t>(end.rank)] = true;
  }
  CHECK(seen == std::vector<bool>(kMany, true));
}

}  // namespace
}  // namespace launcher
