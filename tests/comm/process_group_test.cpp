// init_process_group() in real processes, started as each launcher would, and what goes wrong there. Every job has to
// end by itself within its bound.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ChildProcess;
using test::Command;
using test::free_port;
using test::Outcome;
using test::run_all;

constexpr auto kBound = seconds(20);
constexpr const char* kShortTimeoutMs = "1500";

std::vector<std::string> program(const std::string& what, const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments{DDPRUN_TEST_RANK_PROGRAM, what};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

Command rank(int rank, int size, uint16_t port, std::vector<std::string> arguments) {
  return {.arguments = std::move(arguments),
          .environment = {{"RANK", std::to_string(rank)},
                          {"WORLD_SIZE", std::to_string(size)},
                          {"LOCAL_RANK", std::to_string(rank)},
                          {"LOCAL_WORLD_SIZE", std::to_string(size)},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(port)}}};
}

// All ranks of a job in which rank 0 hosts the store.
std::vector<Command> job(int size, const std::vector<std::string>& arguments) {
  const uint16_t port = free_port();
  std::vector<Command> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(rank(i, size, port, arguments));
  return ranks;
}

std::string all_of(const Outcome& outcome) {
  return "status " + std::to_string(outcome.status) + " after " + std::to_string(outcome.duration.count()) +
         " ms\noutput: " + outcome.output + "errors: " + outcome.errors;
}

void expect_success(const Outcome& outcome) {
  INFO(all_of(outcome));
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status == 0);
  INFO("nothing to complain about");
  CHECK_THAT(outcome.errors, IsEmpty());
}

// The error that the program reported; the test fails unless it is exactly one line and the exit status 1.
std::string error_line(const Outcome& outcome) {
  INFO(all_of(outcome));
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status == 1);
  std::istringstream lines(outcome.errors);
  std::string found;
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("error: ")) continue;
    found = line;
    ++count;
  }
  CHECK(count == 1);
  INFO("in a sanitizer build");
  CHECK_THAT(outcome.errors, !ContainsSubstring("Sanitizer"));
  return found;
}

// A socket that occupies a port of loopback.
class OccupiedPort {
 public:
  OccupiedPort() : socket_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    socklen_t size = sizeof address;
    CHECK(bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(listen(socket_, 1) == 0);
    CHECK(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin6_port);
  }
  ~OccupiedPort() { close(socket_); }
  OccupiedPort(const OccupiedPort&) = delete;
  OccupiedPort& operator=(const OccupiedPort&) = delete;
  uint16_t port() const { return port_; }

 private:
  int socket_;
  uint16_t port_ = 0;
};

TEST_CASE("ProcessGroup: forms without a launcher with rank 0 hosting the store") {
  const auto outcomes = run_all(job(3, program("join")), kBound);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    expect_success(outcomes[i]);
    CHECK(outcomes[i].output == "rank " + std::to_string(i) + " of 3 sum 6 backend shm\n");
  }
}

TEST_CASE("ProcessGroup: what the environment names in the place of shared memory serves the CPU") {
  std::vector<Command> ranks = job(2, program("join"));
  for (Command& rank : ranks) rank.environment["DDPRUN_CPU_BACKEND"] = "gloo";
  const auto outcomes = run_all(ranks, kBound);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    expect_success(outcomes[i]);
    CHECK(outcomes[i].output == "rank " + std::to_string(i) + " of 2 sum 3 backend gloo\n");
  }
}

// As root, where the kernel lets it.
TEST_CASE("ProcessGroup: ranks that cannot map each other's memory use gloo, and say why where they might have") {
  const std::vector<std::string> own_processes{"/usr/bin/unshare", "--pid", "--fork", "--mount-proc"};
  const std::vector<std::string> fewer_rights{"/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all"};
  const auto wrapped = [](std::vector<std::string> prefix, const std::vector<std::string>& command) {
    prefix.insert(prefix.end(), command.begin(), command.end());
    return prefix;
  };
  for (const auto& prefix : {own_processes, fewer_rights}) {
    const bool exists = std::filesystem::exists(prefix[0]);
    if (!exists || run_all({{.arguments = wrapped(prefix, {"/bin/true"})}}, kBound)[0].status != 0) {
      SKIP("this process may not run " + prefix[0]);
    }
    const uint16_t port = free_port();
    const auto outcomes =
        run_all({rank(0, 2, port, program("join")), rank(1, 2, port, wrapped(prefix, program("join")))}, kBound);
    for (const Outcome& outcome : outcomes) {
      INFO(all_of(outcome));
      CHECK(outcome.status == 0);
      CHECK_THAT(outcome.output, ContainsSubstring("sum 3 backend cpu:gloo\n"));
    }
    const bool is_told =
        outcomes[0].errors.find("ddprun: the ranks share no memory and use gloo: rank 1 of 2: process ") == 0;
    CHECK(is_told == (prefix == fewer_rights));
    CHECK(outcomes[1].errors.empty());
  }
}

TEST_CASE("ProcessGroup: forms over a backend that the program adds") {
  const auto outcomes = run_all(job(2, program("count", {"--backend", "counting"})), kBound);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    expect_success(outcomes[i]);
    CHECK(outcomes[i].output == "rank " + std::to_string(i) + " of 2 sum 3 backend counting\n1 calls\n");
  }
}

TEST_CASE("ProcessGroup: refuses a backend that nobody has added and says which there are") {
  const auto outcomes = run_all(job(2, program("join", {"--backend", "counting"})), kBound);
  for (const Outcome& outcome : outcomes) {
    CHECK_THAT(error_line(outcome),
               ContainsSubstring("'counting' is not a known backend. Use 'gloo', 'nccl', 'shm' or a list"));
  }
}

TEST_CASE("ProcessGroup: of one process needs no variables") {
  const auto outcomes = run_all({{.arguments = program("join")}}, kBound);
  expect_success(outcomes[0]);
  CHECK(outcomes[0].output == "rank 0 of 1 sum 1 backend local\n");
}

#ifdef DDPRUN_TEST_LAUNCHER
TEST_CASE("ProcessGroup: forms under ddprun whose store all ranks are clients of") {
  std::vector<std::string> arguments{DDPRUN_TEST_LAUNCHER, "--standalone", "--nproc_per_node=3"};
  for (const std::string& argument : program("join")) arguments.push_back(argument);
  const auto outcomes = run_all({{.arguments = arguments}}, kBound);
  UNSCOPED_INFO(all_of(outcomes[0]));
  CHECK(outcomes[0].status == 0);
  for (int i = 0; i < 3; ++i) {
    CHECK_THAT(outcomes[0].output, ContainsSubstring("rank " + std::to_string(i) + " of 3 sum 6 backend shm\n"));
  }
}

// All ranks of a job over two nodes; what the second one is given besides.
std::vector<Outcome> on_two_nodes(const std::vector<std::string>& options, const std::vector<std::string>& arguments) {
  const std::string port = std::to_string(free_port());
  std::vector<Command> nodes;
  for (const std::string node : {"0", "1"}) {
    std::vector<std::string> line{DDPRUN_TEST_LAUNCHER, "--nnodes=2", "--nproc_per_node=2", "--node_rank", node,
                                  "--master_addr",      "127.0.0.1",  "--master_port",      port};
    if (node == "1") line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), arguments.begin(), arguments.end());
    nodes.push_back({.arguments = line});
  }
  return run_all(nodes, kBound);
}

TEST_CASE("ProcessGroup: ranks of a node without the store form their groups by its ddprun's proxy") {
  for (const Outcome& node : on_two_nodes({}, program("form_three_groups"))) {
    INFO(all_of(node));
    CHECK(node.status == 0);
    CHECK_THAT(node.output, ContainsSubstring("of 4 sum 10 backend shm\n"));
  }
  // That it is the proxy's doing: where nobody listens, there is none.
  const auto without =
      on_two_nodes({"-x", "DDPRUN_STORE_PROXY=127.0.0.1:1"}, program("join", {"--timeout_ms", kShortTimeoutMs}));
  INFO(all_of(without[1]));
  CHECK(without[1].status == 1);
  // Of two nodes whose ranks give up at the same moment either may be the first.
  CHECK_THAT(without[1].errors, ContainsSubstring("cannot reach the job's store") ||
                                    ContainsSubstring("rank 1 of 4: could not connect the ranks (backend shm)") ||
                                    // its launcher has heard of node 0's end before it said so itself
                                    ContainsSubstring("rank 0 of 4: could not connect the ranks (backend shm)"));
}

TEST_CASE("ProcessGroup: forms again and again on the launcher's store") {
  std::vector<std::string> arguments{DDPRUN_TEST_LAUNCHER, "--standalone", "--nproc_per_node=2"};
  for (const std::string& argument : program("form_three_groups")) arguments.push_back(argument);
  const auto outcomes = run_all({{.arguments = arguments}}, kBound);
  INFO(all_of(outcomes[0]));
  CHECK(outcomes[0].status == 0);
  size_t lines = 0;
  for (size_t at = 0; (at = outcomes[0].output.find("of 2 sum 3 backend shm\n", at)) != std::string::npos; ++at)
    ++lines;
  CHECK(lines == 6U);
}
#endif

#ifdef DDPRUN_TEST_PYTHON
TEST_CASE("ProcessGroup: forms under torchrun") {
  std::vector<std::string> arguments{DDPRUN_TEST_PYTHON,   "-m",         "torch.distributed.run", "--standalone",
                                     "--nproc_per_node=2", "--no_python"};
  for (const std::string& argument : program("join")) arguments.push_back(argument);
  const auto outcomes = run_all({{.arguments = arguments}}, seconds(60));
  UNSCOPED_INFO(all_of(outcomes[0]));
  CHECK(outcomes[0].status == 0);
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(outcomes[0].output, ContainsSubstring("rank " + std::to_string(i) + " of 2 sum 3 backend shm\n"));
  }
}

TEST_CASE("ProcessGroup: shares sub groups and messages with a rank that runs Python") {
  const std::string script =
      "import torch, torch.distributed as dist\n"
      "dist.init_process_group('gloo')\n"
      "both, alone = dist.new_group([0, 1]), dist.new_group([1])\n"
      "total = torch.full((3,), 10.0)\n"
      "dist.all_reduce(total, group=both)\n"
      "dist.send(torch.full((2,), 7.0), 1, tag=4)\n"
      "parts = torch.zeros(4)\n"
      "dist.all_to_all_single(parts, torch.arange(4.0), group=both)\n"
      "rows = [torch.zeros(1), torch.zeros(1)]\n"
      "dist.gather(torch.zeros(1), rows, dst=0)\n"
      "print('total', total[0].item(), 'parts', parts.tolist(), 'rows', [row.item() for row in rows])\n"
      "dist.destroy_process_group()\n";
  const uint16_t port = free_port();
  const auto outcomes = run_all(
      {rank(0, 2, port, {DDPRUN_TEST_PYTHON, "-c", script}), rank(1, 2, port, program("meet_python"))}, seconds(60));
  UNSCOPED_INFO(all_of(outcomes[0]));
  CHECK(outcomes[0].status == 0);
  CHECK(outcomes[0].output == "total 15.0 parts [0.0, 1.0, 20.0, 20.0] rows [0.0, 1.0]\n");
  UNSCOPED_INFO(all_of(outcomes[1]));
  CHECK(outcomes[1].status == 0);
  CHECK(outcomes[1].output == "sum 15 message 7 parts 2 20 root 0 alone 1\n");
}
#endif

// One rank for each URL, which says its place; nothing is in its environment.
std::vector<Command> ranks_at(const std::string& url, int size, const std::vector<std::string>& arguments) {
  std::vector<Command> ranks;
  for (int i = 0; i < size; ++i) {
    std::vector<std::string> line = arguments;
    line.insert(line.end(), {"--init", url + "?rank=" + std::to_string(i) + "&world_size=" + std::to_string(size)});
    ranks.push_back({.arguments = line});
  }
  return ranks;
}

std::string url_at(const std::string& place, const test::TemporaryFolder& folder) {
  return place + (place == "file://" ? (folder / "store").string() : std::to_string(free_port()));
}

TEST_CASE("ProcessGroup: forms at a URL, again and again, with nothing in the environment") {
  const std::string place = GENERATE(as<std::string>(), "tcp://127.0.0.1:", "tcp://[::1]:", "file://");
  CAPTURE(place);
  const test::TemporaryFolder folder;
  const std::string whole = url_at(place, folder);
  const auto outcomes = run_all(ranks_at(whole, 3, program("form_three_groups")), kBound);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    expect_success(outcomes[i]);
    const std::string line = "rank " + std::to_string(i) + " of 3 sum 6 backend shm\n";
    CHECK(outcomes[i].output == line + line + line);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("ProcessGroup: a file that an earlier job has left, and one that cannot be, are refused") {
  const test::TemporaryFolder folder;
  const std::string url = "file://" + (folder.path() / "store").string();
  // Rank 1 never comes, so the file stays.
  std::vector<Command> alone = ranks_at(url, 2, program("join", {"--timeout_ms", kShortTimeoutMs}));
  alone.pop_back();
  CHECK_THAT(error_line(run_all(alone, kBound)[0]), ContainsSubstring("never arrived: rank 1"));
  const auto again = run_all(ranks_at(url, 2, program("join", {"--timeout_ms", kShortTimeoutMs})), kBound);
  CHECK_THAT(error_line(again[0]), ContainsSubstring("is already taken by") && ContainsSubstring("remove the file"));
  const auto lost = run_all(ranks_at("file:///no/such/folder/store", 2, program("join")), kBound);
  CHECK_THAT(error_line(lost[0]), ContainsSubstring("there is no folder /no/such/folder"));
  CHECK(lost[0].duration < seconds(5));
}

TEST_CASE("ProcessGroup: a failure is told to the ranks that meet in a file") {
  const test::TemporaryFolder folder;
  const std::string url = "file://" + (folder.path() / "store").string();
  const auto outcomes = run_all(ranks_at(url, 2, program("rank1_fails")), kBound);
  CHECK_THAT(error_line(outcomes[1]), ContainsSubstring("the data of this rank is bad"));
  CHECK_THAT(error_line(outcomes[0]), ContainsSubstring("rank 1"));
}

#ifdef DDPRUN_TEST_PYTHON
TEST_CASE("ProcessGroup: meets a rank that runs Python at the same URL") {
  const std::string place = GENERATE(as<std::string>(), "tcp://127.0.0.1:", "file://");
  const int python = GENERATE(0, 1);
  CAPTURE(place, python);
  const test::TemporaryFolder folder;
  const std::string whole = url_at(place, folder);
  const std::string script =
      "import sys, torch, torch.distributed as dist\n"
      "dist.init_process_group('gloo', init_method=sys.argv[-1])\n"
      "total = torch.full((3,), dist.get_rank() + 1.0)\n"
      "dist.all_reduce(total)\n"
      "print('sum', int(total[0].item()))\n"
      "dist.destroy_process_group()\n";
  std::vector<Command> ranks = ranks_at(whole, 2, program("join"));
  ranks[static_cast<size_t>(python)] =
      ranks_at(whole, 2, {DDPRUN_TEST_PYTHON, "-c", script})[static_cast<size_t>(python)];
  for (const Outcome& outcome : run_all(ranks, seconds(60))) {
    INFO(all_of(outcome));
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.output, ContainsSubstring("sum 3"));
  }
}
#endif

TEST_CASE("ProcessGroup: forms again and again on rank 0's store") {
  const auto outcomes = run_all(job(3, program("form_three_groups")), kBound);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    expect_success(outcomes[i]);
    const std::string line = "rank " + std::to_string(i) + " of 3 sum 6 backend shm\n";
    CHECK(outcomes[i].output == line + line + line);
  }
}

TEST_CASE("ProcessGroup: lets rank 0 leave first without a warning on any rank") {
  for (const Outcome& outcome : run_all(job(3, program("rank0_leaves_first")), kBound)) expect_success(outcome);
}

TEST_CASE("ProcessGroup: names the variable that is missing or wrong") {
  Command no_address = rank(0, 2, 29500, program("join"));
  no_address.environment.erase("MASTER_ADDR");
  Command high_rank = rank(2, 2, 29500, program("join"));
  high_rank.environment["LOCAL_RANK"] = "0";
  const auto outcomes = run_all({no_address, high_rank}, kBound);
  CHECK_THAT(error_line(outcomes[0]), ContainsSubstring("rank 0 of 2: MASTER_ADDR is not set"));
  CHECK_THAT(error_line(outcomes[1]), ContainsSubstring("RANK=2 but WORLD_SIZE=2"));
  for (const Outcome& outcome : outcomes) CHECK(outcome.duration < seconds(5));
}

TEST_CASE("ProcessGroup: refuses a world size that disagrees") {
  const uint16_t port = free_port();
  const std::vector<std::string> arguments = program("join", {"--timeout_ms", kShortTimeoutMs});
  const auto outcomes = run_all({rank(0, 2, port, arguments), rank(1, 3, port, arguments)}, kBound);
  // Whoever arrives second notices at once; the first one times out at the latest, or loses rank 0's store.
  CHECK_THAT(error_line(outcomes[0]) + error_line(outcomes[1]), ContainsSubstring("was started with WORLD_SIZE=") &&
                                                                    ContainsSubstring("WORLD_SIZE=2") &&
                                                                    ContainsSubstring("WORLD_SIZE=3"));
}

TEST_CASE("ProcessGroup: refuses a backend that disagrees") {
  const uint16_t port = free_port();
  const auto outcomes =
      run_all({rank(0, 2, port, program("join", {"--timeout_ms", kShortTimeoutMs, "--backend", "gloo"})),
               rank(1, 2, port, program("join", {"--timeout_ms", kShortTimeoutMs, "--backend", "cpu:gloo"}))},
              kBound);
  CHECK_THAT(error_line(outcomes[0]) + error_line(outcomes[1]), ContainsSubstring("the ranks disagree") &&
                                                                    ContainsSubstring("backend gloo") &&
                                                                    ContainsSubstring("backend cpu:gloo"));
}

TEST_CASE("ProcessGroup: refuses a rank that is taken") {
  const uint16_t port = free_port();
  const std::vector<std::string> arguments = program("join", {"--timeout_ms", kShortTimeoutMs});
  const auto outcomes =
      run_all({rank(0, 3, port, arguments), rank(1, 3, port, arguments), rank(1, 3, port, arguments)}, kBound);
  const std::string first = error_line(outcomes[1]);
  const std::string second = error_line(outcomes[2]);
  CHECK_THAT(first + second, ContainsSubstring("rank 1 of 3") && ContainsSubstring("is already taken by ") &&
                                 ContainsSubstring("Every process of the job needs its own RANK"));
  CHECK_THAT(error_line(outcomes[0]), ContainsSubstring("never arrived: rank 2"));
}

TEST_CASE("ProcessGroup: names the rank that is missing at the timeout") {
  const uint16_t port = free_port();
  const std::vector<std::string> arguments = program("join", {"--timeout_ms", kShortTimeoutMs});
  const auto outcomes = run_all({rank(0, 4, port, arguments), rank(2, 4, port, arguments)}, kBound);
  CHECK_THAT(error_line(outcomes[0]), ContainsSubstring("rank 0 of 4: could not connect the ranks") &&
                                          ContainsSubstring("never arrived: rank 1, 3"));
  error_line(outcomes[1]);
  for (const Outcome& outcome : outcomes) {
    INFO(all_of(outcome));
    CHECK(outcome.duration < seconds(8));
  }
}

TEST_CASE("ProcessGroup: refuses a port in use") {
  const OccupiedPort occupied;
  const auto outcomes =
      run_all({rank(0, 2, occupied.port(), program("join", {"--timeout_ms", kShortTimeoutMs}))}, kBound);
  CHECK_THAT(error_line(outcomes[0]), ContainsSubstring("rank 0 of 2: cannot run the job's store at 127.0.0.1:" +
                                                        std::to_string(occupied.port())) &&
                                          ContainsSubstring("must be free"));
  INFO(all_of(outcomes[0]));
  CHECK(outcomes[0].duration < seconds(8));
}

TEST_CASE("ProcessGroup: gives up on a store that cannot be reached") {
  const uint16_t port = free_port();
  Command bad_name = rank(1, 2, port, program("join", {"--timeout_ms", kShortTimeoutMs}));
  bad_name.environment["MASTER_ADDR"] = "no-such-host.invalid";
  const auto outcomes =
      run_all({rank(1, 2, port, program("join", {"--timeout_ms", kShortTimeoutMs})), bad_name}, kBound);
  CHECK_THAT(error_line(outcomes[0]),
             ContainsSubstring("rank 1 of 2: cannot reach the job's store at 127.0.0.1:" + std::to_string(port)) &&
                 ContainsSubstring(", which rank 0 hosts: ") && !ContainsSubstring("hosts: the job's store"));
  CHECK_THAT(error_line(outcomes[1]), ContainsSubstring("cannot reach the job's store at no-such-host.invalid:"));
  for (const Outcome& outcome : outcomes) {
    INFO(all_of(outcome));
    CHECK(outcome.duration < seconds(10));
  }
}

TEST_CASE("ProcessGroup: ends a rank that fails at once and tells the peers who is gone") {
  for (const bool rank0_fails : {false, true}) {
    const auto outcomes = run_all(job(3, program(rank0_fails ? "rank0_fails" : "rank1_fails")), kBound);
    const size_t failing = rank0_fails ? 0 : 1;
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const std::string line = error_line(outcomes[i]);
      UNSCOPED_INFO(all_of(outcomes[i]));
      CHECK(outcomes[i].duration < seconds(8));
      if (i == failing) {
        CHECK_THAT(line, ContainsSubstring("the data of this rank is bad"));
      } else {
        CHECK_THAT(line, ContainsSubstring("rank " + std::to_string(i) + " of 3: all_reduce (number 1)") &&
                             ContainsSubstring(rank0_fails ? "rank 0" : "did not take part in it: rank 1") &&
                             !ContainsSubstring("although a rank had failed"));
      }
    }
  }
}

TEST_CASE("ProcessGroup: ends a rank that fails with a collective in flight") {
  const auto outcomes = run_all(job(2, program("rank1_fails_in_flight")), kBound);
  CHECK_THAT(error_line(outcomes[1]), ContainsSubstring("the data of this rank is bad"));
  INFO(all_of(outcomes[1]));
  CHECK(outcomes[1].duration < seconds(8));
  error_line(outcomes[0]);
}

}  // namespace
}  // namespace ddp
