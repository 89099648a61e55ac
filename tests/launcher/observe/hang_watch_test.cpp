// What it costs to watch ranks that wait, and that this hides nothing.
#include "launcher/observe/watch/hang_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "launcher/observe/watch/process_state.h"
#include "tests/launcher/in_child.h"
#include "tests/launcher/remembered_messages.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// Processes of this one that sleep.
class Sleepers {
 public:
  explicit Sleepers(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        while (true) ::pause();
      }
      pids_.push_back(pid);
    }
    for (const pid_t pid : pids_) comes_true([pid] { return process_stat(pid)->state == 'S'; });
  }
  ~Sleepers() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  std::vector<WatchedRank> ranks() const {
    std::vector<WatchedRank> ranks;
    for (const pid_t pid : pids_) ranks.push_back({.rank = static_cast<int>(ranks.size()), .pid = pid});
    return ranks;
  }

 private:
  std::vector<pid_t> pids_;
};

void run_for(EventLoop& loop, std::chrono::milliseconds time) {
  bool is_over = false;
  loop.call_at(EventLoop::Clock::now() + time, [&] { is_over = true; });
  while (!is_over) loop.run_once();
}

TEST_CASE("HangWatch: a job that does not train is looked at together, and ever more rarely") {
  const Sleepers sleepers(8);
  EventLoop loop;
  RememberedMessages messages;
  std::vector<std::size_t> asked;
  HangWatch watch(loop, messages,
                  {.timeout = 20ms,
                   .ranks = [&] { return sleepers.ranks(); },
                   .store_users =
                       [&](const std::vector<pid_t>& pids) {
                         asked.push_back(pids.size());
                         return std::set<pid_t>();
                       }});
  run_for(loop, 2s);  // some 100 looks
  CHECK(!asked.empty());
  CHECK(asked.size() <= 8);  // after 20, 40, 80 ... ms
  for (const std::size_t ranks : asked) CHECK(ranks == 8);
  CHECK(messages.lines.empty());
}

TEST_CASE("HangWatch: a rank that comes to the store later is reported nevertheless") {
  const Sleepers sleepers(2);
  EventLoop loop;
  RememberedMessages messages;
  bool has_come = false;
  HangWatch watch(loop, messages,
                  {.timeout = 20ms,
                   .ranks = [&] { return sleepers.ranks(); },
                   .store_users =
                       [&](const std::vector<pid_t>& pids) {
                         return has_come ? std::set<pid_t>{pids.front()} : std::set<pid_t>();
                       }});
  run_for(loop, 300ms);
  CHECK(messages.lines.empty());
  has_come = true;
  CHECK(comes_true([&] {
    run_for(loop, 20ms);
    return !messages.lines.empty();
  }));
  CHECK_THAT(messages.lines.front(), Catch::Matchers::ContainsSubstring("rank 1 has no connection to the job's store"));
}

// How often this process has called read() and its like.
std::uint64_t own_reads() {
  std::ifstream file("/proc/self/io");
  for (std::string name; file >> name;) {
    std::uint64_t value = 0;
    file >> value;
    if (name == "syscr:") return value;
  }
  return 0;
}

TEST_CASE("Observer: a rank that waits costs one small file a look") {
  constexpr int kRanks = 16;
  constexpr int kLooks = 40;
  const Sleepers sleepers(kRanks);
  if (!processor_time(::getpid())) SKIP("this kernel does not say how much processor time others have had");
  if (own_reads() == 0) SKIP("this kernel does not count what processes read");
  const auto ranks = sleepers.ranks();
  Observer observer(1s, "host");
  Observer::Clock::time_point now{1s};
  observer.observe(ranks, now);
  const std::uint64_t before = own_reads();
  for (int i = 0; i < kLooks; ++i) observer.observe(ranks, now += 1s);
  const auto reads = static_cast<double>(own_reads() - before) / (kRanks * kLooks);
  CHECK(reads < 2);  // all of the processes and their figures: 4 or more
  CHECK(observer.idle_time() == std::chrono::seconds(kLooks));
}

TEST_CASE("Observer: a rank whose child works makes progress, though it has waited for long") {
  CHECK(in_child([]() -> std::string {
          // A shell that has a child of its own once it is told so.
          const pid_t shell = ::fork();
          if (shell == 0) {
            ::execl("/bin/sh", "sh", "-c", "kill -STOP $$; (while :; do :; done) & sleep 100; kill -9 $!",
                    static_cast<char*>(nullptr));
            ::_exit(127);
          }
          comes_true([&] { return process_stat(shell)->is_stopped(); });
          const std::vector<WatchedRank> ranks = {{.rank = 0, .pid = shell}};
          Observer observer(1s, "host");
          Observer::Clock::time_point now{1s};
          for (int i = 0; i < 5; ++i) observer.observe(ranks, now += 1s);
          std::string text = observer.idle_time() >= 4s ? "waits, " : "works, ";
          ::kill(shell, SIGCONT);
          comes_true([&] { return process_tree_of(shell).size() == 3; });
          const auto family = process_tree_of(shell);
          comes_true([&] {
            observer.observe(ranks, now += 1s);
            std::this_thread::sleep_for(50ms);
            return observer.idle_time() == 0us;
          });
          text += observer.idle_time() == 0us ? "works" : "waits";
          for (const pid_t pid : family) ::kill(pid, SIGKILL);
          ::waitpid(shell, nullptr, 0);
          return text;
        }) == "waits, works");
}

// For how many milliseconds the process was ready without a processor so far.
std::uint64_t run_delay_ms(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/schedstat");
  std::uint64_t ran = 0, waited = 0;
  file >> ran >> waited;
  return waited / 1'000'000;
}

TEST_CASE("Observer: a rank with a thread that polls makes no progress, however short the interval is") {
  CHECK(in_child([]() -> std::string {
          const pid_t poller = ::fork();
          if (poller == 0) {
            for (;;)
              std::this_thread::sleep_for(20ms);  // as gloo's and the store's threads do; some 0.3 % of a processor
          }
          if (!processor_time(poller)) return "waits";  // the kernel counts in ticks only
          const std::vector<WatchedRank> ranks = {{.rank = 0, .pid = poller}};
          Observer observer(200ms, "host");
          observer.observe(ranks, Observer::Clock::now());
          // The time that the kernel counts in ticks grows by one at least once.
          const auto end = Observer::Clock::now() + 60s;
          const std::uint64_t ticks = process_stat(poller)->cpu_ticks;
          std::array<std::uint64_t, 2> delays{};
          std::string text = "waits";
          while (process_stat(poller)->cpu_ticks < ticks + 2 && Observer::Clock::now() < end) {
            std::this_thread::sleep_for(200ms);
            observer.observe(ranks, Observer::Clock::now());
            // One that had no processor between two looks would have worked, as far as anybody knows.
            const std::uint64_t delay = run_delay_ms(poller);
            const bool had_processor = delay - delays.front() < 50;
            delays = {delays.back(), delay};
            if (had_processor && observer.idle_time() == 0us) text = "works";
          }
          ::kill(poller, SIGKILL);
          ::waitpid(poller, nullptr, 0);
          return text;
        }) == "waits");
}

TEST_CASE("ProcessorTime: grows with work only, of other processes too") {
  const Sleepers one(1);
  const pid_t pid = one.ranks().front().pid;
  const auto before = processor_time(pid);
  if (!before) SKIP("this kernel does not say how much processor time others have had");
  const auto own = processor_time(::getpid());
  while (processor_time(::getpid()) < *own + 1'000'000) {
  }
  CHECK(processor_time(pid) == before);
  CHECK(process_tree_time({pid, ::getpid()}).value() > *before);
  CHECK_FALSE(processor_time(-1));
  constexpr pid_t kNobody = (1 << 22) + 1;  // above every process's number
  CHECK_FALSE(processor_time(kNobody));
  CHECK_FALSE(process_tree_time({pid, kNobody}));
}

}  // namespace
}  // namespace launcher
