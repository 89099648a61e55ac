// Simulates a job of many nodes on one machine: rendezvous_scale NODES [RANKS_PER_NODE] [PROCESSES] [QUIET_SECONDS]
//
// This process is the launcher of node 0 with its coordinator and the store, as in a real job. The other nodes are
// objects in PROCESSES additional processes; each has a separate connection over loopback. Prints one JSON object: the
// seconds of each phase, and the costs of each phase in the process of the coordinator.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/rendezvous/simulated_node.h"
#include "bench/rendezvous/simulation.h"
#include "launcher/nodes/rendezvous/coordinator.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/system/open_files.h"

namespace bench {
namespace {

using namespace std::chrono_literals;
using launcher::EventLoop;

struct Silent : launcher::Messages {
  void print(std::string_view line) override { last = line; }
  void print_lines(std::string_view text) override { last = text; }
  std::string last;
};

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  long size = 0;
  long resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

// Runs the nodes `first`, `first` + `step`, ... until the end of the job.
void run_nodes(Shared& shared, int first, int step, int nodes, int ranks, std::uint16_t store_port) {
  EventLoop loop;
  Silent messages;
  std::vector<std::unique_ptr<Node>> all;
  for (int number = first; number < nodes; number += step) {
    all.push_back(std::make_unique<Node>(loop, messages, shared, number, nodes, ranks, store_port));
  }
  Phase seen = Phase::kWait;
  std::function<void()> look = [&] {
    loop.call_at(EventLoop::Clock::now() + 2ms, look);
    const Phase phase = shared.phase;
    if (phase == seen) return;
    seen = phase;
    for (const auto& node : all) {
      if (phase == Phase::kJoin) node->join();
      if (phase == Phase::kStore) node->use_store();
      if (phase == Phase::kQuiet) node->answer_immediately();
    }
    if (phase == Phase::kFail && first == 1) {
      shared.failed = now_microseconds();
      all.back()->fail();
    }
    std::int64_t segments = 0;
    std::int64_t bytes = 0;
    for (const auto& node : all) node->add_traffic(segments, bytes);
    shared.segments += segments;
    shared.bytes += bytes;
  };
  look();
  while (shared.phase != Phase::kEnd) loop.run_once();
  ::_exit(0);
}

class Job {
 public:
  Job(int nodes, int ranks, int processes) : nodes_(nodes), ranks_(ranks) {
    store_ = std::make_unique<launcher::store::StoreServer>(loop_, messages_, launcher::store::ServerOptions{});
    for (int i = 0; i < processes; ++i) {
      const pid_t child = ::fork();
      if (child < 0) throw std::runtime_error("cannot fork");
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_nodes(shared_, 1 + i, processes, nodes_, ranks_, store_->port());
      }
      children_.push_back(child);
    }
    launcher::CoordinatorOptions options{.host = hello()};
    options.rendezvous_address = "host0:29500";
    options.join_timeout = 600s;
    options.timeout = [this] { return timeout(); };
    coordinator_ = std::make_unique<launcher::Coordinator>(loop_, messages_, std::move(options));
    store_->set(launcher::kControlPortKey, std::to_string(coordinator_->port()));
    base_megabytes_ = resident_megabytes();
  }
  ~Job() {
    shared_.phase = Phase::kEnd;
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
    member_.reset();
  }

  // The same timeout as the launcher's own (StaticRendezvous).
  std::chrono::milliseconds timeout() const {
    return is_running_ ? launcher::control::heartbeat_timeout(1000ms, nodes_) : 30'000ms;
  }

  void run(double quiet_seconds) {
    std::printf("{\"nodes\": %d, \"ranks\": %d", nodes_, ranks_);
    coordinator_->begin_round(0, *store_);
    launcher::MemberOptions own{.hello = hello(), .is_local = true};
    own.timeout = [this] { return timeout(); };
    own.is_any_ending = [] { return false; };
    own.on_start = [](const launcher::control::Start&) {};
    own.on_failure = [](const launcher::FailureNotice&) {};
    join(std::move(own));
    use_store();
    live_and_fail(quiet_seconds);
    std::printf(", \"lost\": %d}\n", shared_.lost.load());
  }

 private:
  void join(launcher::MemberOptions own) {
    phase(
        "join", Phase::kJoin, [&] { return shared_.joined >= nodes_ - 1; },
        [&] {
          member_ =
              std::make_unique<launcher::Member>(loop_, messages_, std::move(own), coordinator_->connect_locally());
          member_->begin_round(0);
        });
    std::printf(", \"join_megabytes\": %.1f", resident_megabytes() - base_megabytes_);
  }

  void use_store() {
    phase("store", Phase::kStore, [&] { return shared_.served >= (nodes_ - 1) * ranks_; });
    std::printf(", \"store_megabytes\": %.1f, \"store_connections\": %zu, \"store_nodes\": %zu",
                resident_megabytes() - base_megabytes_, store_->connections(), store_->proxies().links());
  }

  void live_and_fail(double quiet_seconds) {
    is_running_ = true;
    coordinator_->announce_timeout();
    const auto end = EventLoop::Clock::now() + std::chrono::duration<double>(quiet_seconds);
    phase("quiet", Phase::kQuiet, [&] { return EventLoop::Clock::now() > end; });
    phase("failure", Phase::kFail,
          [&] { return shared_.stopped >= nodes_ - 2 && coordinator_->have_all_acknowledged(); });
    std::printf(", \"failure_known_seconds\": %.3f", static_cast<double>(shared_.last_stop - shared_.failed) / 1e6);
  }

  launcher::control::Hello hello() const {
    return {.version = launcher::kDdprunVersion,
            .host = "host0",
            .pid = 1,
            .launcher = "launcher0",
            .nnodes = nodes_,
            .node_rank = 0,
            .run_id = "none",
            .backend = "static",
            .local_world_size = ranks_,
            .role = "default"};
  }

  void phase(
      const char* name, Phase next, const std::function<bool()>& is_over, const std::function<void()>& begin = [] {}) {
    const double cpu = cpu_seconds();
    const auto time = EventLoop::Clock::now();
    shared_.segments = 0;
    shared_.bytes = 0;
    shared_.phase = next;
    begin();
    bool is_late = false;
    const auto limit = loop_.call_at(time + 300s, [&] { is_late = true; });
    // The other nodes give up on a node that got too little CPU time, so the benchmark does not wait for it.
    const auto has_lost = [&] { return next != Phase::kFail && shared_.lost > 0; };
    while (!is_over() && !is_late && !has_lost()) {
      // Wakes up the loop periodically, because other processes change the counters.
      const auto tick = loop_.call_at(EventLoop::Clock::now() + 1ms, [] {});
      loop_.run_once();
      loop_.cancel(tick);
    }
    loop_.cancel(limit);
    if (has_lost()) {
      throw std::runtime_error(std::to_string(shared_.lost) + " nodes were taken for lost (" + name +
                               "), though nothing had happened: this machine is too busy for so many");
    }
    if (is_late) throw std::runtime_error(std::string(name) + " is not over after 300 s: " + messages_.last);
    const std::chrono::duration<double> took = EventLoop::Clock::now() - time;
    // The counters are totals since the start, so each is printed as its value at the start of the phase.
    std::printf(", \"%s_seconds\": %.3f, \"%s_cpu_seconds\": %.3f, \"before_%s_segments\": %lld", name, took.count(),
                name, cpu_seconds() - cpu, name, static_cast<long long>(shared_.segments.load()));
    std::fflush(stdout);
  }

  int nodes_;
  int ranks_;
  Shared& shared_ = *make_shared_memory();
  EventLoop loop_;
  Silent messages_;
  std::unique_ptr<launcher::store::StoreServer> store_;
  std::unique_ptr<launcher::Coordinator> coordinator_;
  std::unique_ptr<launcher::Member> member_;
  std::vector<pid_t> children_;
  bool is_running_ = false;
  double base_megabytes_ = 0;
};

}  // namespace
}  // namespace bench

int main(int count, char** arguments) try {
  const auto number = [&](int index, int otherwise) { return count > index ? std::atoi(arguments[index]) : otherwise; };
  const int nodes = std::max(number(1, 100), 3);
  // Each node needs a connection, and another one while it asks the store where to connect. Only root may raise the
  // hard limit.
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(nodes + 100);
  const rlimit wanted{std::max(limit.rlim_max, needed), std::max(limit.rlim_max, needed)};
  if (::setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
    static_cast<void>(launcher::raise_open_files());
    if (limit.rlim_max < needed) {
      std::fprintf(stderr, "%d nodes need %llu open files (ulimit -n); the hard limit is %llu\n", nodes,
                   static_cast<unsigned long long>(needed), static_cast<unsigned long long>(limit.rlim_max));
      return 1;
    }
  }
  bench::Job job(nodes, std::max(number(2, 8), 1), std::max(number(3, 2), 1));
  job.run(number(4, 5));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rendezvous_scale: %s\n", error.what());
  return 1;
}
