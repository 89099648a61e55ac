#include "launcher/command_line/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(PlacementOptions, DefaultsLeaveEverythingToTheUser) {
  const Options options = options_of({});
  EXPECT_TRUE(options.gpus.empty());
  EXPECT_EQ(options.binding, Options::Binding::kNone);
  EXPECT_EQ(options.store, Options::Store::kLauncher);
  EXPECT_FALSE(options.start_timeout || options.debug_rank || options.torchrun_exit_code || options.virtual_local_rank);
}

TEST(PlacementOptions, OneRankForEachNamedGpu) {
  const Options options = options_of({"--gpus", "2,4,GPU-12ab"});
  EXPECT_THAT(options.gpus, ElementsAre("2", "4", "GPU-12ab"));
  EXPECT_EQ(options.nproc_per_node, 3);
  EXPECT_EQ(options_of({"--gpus=2,4,7", "-n", "6"}).nproc_per_node, 6);
  EXPECT_THAT(problem_with({"--gpus", "1,1"}), HasSubstr("twice"));
  for (const char* list : {"1,,2", "x", "-1", ",", "0x1"}) {
    EXPECT_THAT(problem_with({"--gpus", list}), HasSubstr("--gpus")) << list;
  }
}

TEST(PlacementOptions, SignalsByTheirNames) {
  EXPECT_THAT(options_of({"--signals-to-handle", "SIGTERM,USR1"}).stop_signals, ElementsAre(SIGTERM, SIGUSR1));
  for (const char* list : {"SIGNONE", "SIGKILL", "SIGCHLD", "", "SIGTERM,"}) {
    EXPECT_NE(problem_with({"--signals_to_handle", list}), "") << list;
  }
}

TEST(PlacementOptions, TheOthersAndTheirMistakes) {
  const Options options = options_of({"--bind-to", "numa", "--store=rank0", "--exit-code", "torchrun", "--debug", "1",
                                      "--virtual-local-rank", "-n", "2"});
  EXPECT_EQ(options.binding, Options::Binding::kNuma);
  EXPECT_EQ(options.store, Options::Store::kRank0);
  EXPECT_EQ(options.debug_rank, 1);
  EXPECT_TRUE(options.torchrun_exit_code && options.virtual_local_rank);
  EXPECT_EQ(options_of({"--start_timeout", "0.5"}).start_timeout, std::chrono::milliseconds(500));
  for (const char* value : {"0", "-1", "nan", "inf", "x"})
    EXPECT_NE(problem_with({"--start_timeout", value}), "") << value;
  EXPECT_THAT(problem_with({"--bind_to", "socket"}), HasSubstr("--bind_to"));
  EXPECT_THAT(problem_with({"--store", "rank0", "--start_timeout", "5"}), HasSubstr("--store rank0"));
  EXPECT_THAT(problem_with({"--store", "rank0", "--nnodes", "2"}), HasSubstr("one node only"));
}

}  // namespace
}  // namespace launcher
