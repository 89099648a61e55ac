#include <csignal>
#include <string>
#include <vector>

#include "launcher/options/command_line.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using ddp::test::ElementsAre;

Options options_of(std::vector<std::string> arguments) {
  arguments.emplace_back("program");
  const auto parsed = parse_command_line(arguments);
  if (const auto* exit = std::get_if<ExitRequest>(&parsed)) throw std::runtime_error(exit->text);
  return std::get<Options>(parsed);
}

std::string problem_with(std::vector<std::string> arguments) {
  arguments.emplace_back("program");
  const auto parsed = parse_command_line(arguments);
  const auto* exit = std::get_if<ExitRequest>(&parsed);
  return exit != nullptr && exit->status == 125 ? exit->text : "";
}

TEST_CASE("PlacementOptions: defaults leave everything to the user") {
  const Options options = options_of({});
  CHECK(options.gpus.empty());
  CHECK(options.binding == Options::Binding::kNone);
  CHECK(options.store == Options::Store::kLauncher);
  CHECK_FALSE(options.start_timeout);
  CHECK_FALSE(options.debug_rank);
  CHECK_FALSE(options.torchrun_exit_code);
  CHECK_FALSE(options.virtual_local_rank);
}

TEST_CASE("PlacementOptions: there is one rank for each named GPU") {
  const Options options = options_of({"--gpus", "2,4,GPU-12ab"});
  CHECK_THAT(options.gpus, ElementsAre("2", "4", "GPU-12ab"));
  CHECK(options.nproc_per_node == 3);
  CHECK(options_of({"--gpus=2,4,7", "-n", "6"}).nproc_per_node == 6);
  CHECK_THAT(problem_with({"--gpus", "1,1"}), ContainsSubstring("twice"));
  for (const char* list : {"1,,2", "x", "-1", ",", "0x1"}) {
    CAPTURE(list);
    CHECK_THAT(problem_with({"--gpus", list}), ContainsSubstring("--gpus"));
  }
}

TEST_CASE("PlacementOptions: signals go by their names") {
  CHECK_THAT(options_of({"--signals-to-handle", "SIGTERM,USR1"}).stop_signals, ElementsAre(SIGTERM, SIGUSR1));
  for (const char* list : {"SIGNONE", "SIGKILL", "SIGCHLD", "", "SIGTERM,"}) {
    CAPTURE(list);
    CHECK(problem_with({"--signals_to_handle", list}) != "");
  }
}

TEST_CASE("PlacementOptions: the others are taken and their mistakes refused") {
  const Options options = options_of({"--bind-to", "numa", "--store=rank0", "--exit-code", "torchrun", "--debug", "1",
                                      "--virtual-local-rank", "-n", "2"});
  CHECK(options.binding == Options::Binding::kNuma);
  CHECK(options.store == Options::Store::kRank0);
  CHECK(options.debug_rank == 1);
  CHECK(options.torchrun_exit_code);
  CHECK(options.virtual_local_rank);
  CHECK(options_of({"--start_timeout", "0.5"}).start_timeout == std::chrono::milliseconds(500));
  for (const char* value : {"0", "-1", "nan", "inf", "x"}) {
    CAPTURE(value);
    CHECK(problem_with({"--start_timeout", value}) != "");
  }
  CHECK_THAT(problem_with({"--bind_to", "thread"}), ContainsSubstring("--bind_to"));
  CHECK_THAT(problem_with({"--store", "rank0", "--start_timeout", "5"}), ContainsSubstring("--store rank0"));
  CHECK_THAT(problem_with({"--store", "rank0", "--nnodes", "2"}), ContainsSubstring("one node only"));
}

}  // namespace
}  // namespace launcher
