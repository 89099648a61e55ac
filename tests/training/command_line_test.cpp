// What a program's command line makes of its options.
#include "training/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp {
namespace {

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    // This process alone, whatever starts the tests.
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      ::unsetenv(name);
    }
    add_options(app_, options_);
    add_options(app_, precision_);
  }

  void parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes a vector
    app_.parse(arguments);
  }

  CLI::App app_;
  TrainingOptions options_{.epochs = 5, .lr = 0.25, .loader = {.batch_size = 16}, .checkpoint_dir = "runs"};
  amp::Options precision_{};
};

TEST_F(CommandLine, what_the_options_hold_is_the_default) {
  parse({});
  EXPECT_EQ(options_.epochs, 5);
  EXPECT_EQ(options_.lr, 0.25);
  EXPECT_EQ(options_.loader.batch_size, 16);
  EXPECT_EQ(options_.checkpoint_dir, "runs");
  EXPECT_EQ(options_.resume, std::nullopt);
  EXPECT_EQ(options_.recorder.tensorboard, "");
  EXPECT_EQ(options_.process_group.backend, "");
  EXPECT_FALSE(options_.process_group.rank_info) << "the environment tells";
  EXPECT_FALSE(precision_.enabled);
  const std::map<std::string, std::string> shown = {
      {"--epochs", "5"}, {"--lr", "0.25"}, {"--batch-size", "16"}, {"--checkpoint-dir", "runs"}, {"--opt-level", "O1"}};
  for (const auto& [name, value] : shown) EXPECT_EQ(app_.get_option(name)->get_default_str(), value) << "--help";
}

TEST_F(CommandLine, every_option_reaches_its_setting) {
  parse({"--epochs",      "7",     "--lr",        "0.5",   "--seed",           "18446744073709551615",
         "--batch-size",  "8",     "--workers",   "0",     "--checkpoint-dir", "there",
         "--tensorboard", "board", "--metrics",   "m.csv", "--backend",        "gloo",
         "--amp",         "bf16",  "--opt-level", "O2"});
  EXPECT_EQ(options_.epochs, 7);
  EXPECT_EQ(options_.lr, 0.5);
  EXPECT_EQ(options_.seed, 18446744073709551615U);
  EXPECT_EQ(options_.loader.batch_size, 8);
  EXPECT_EQ(options_.loader.workers, 0);
  EXPECT_EQ(options_.checkpoint_dir, "there");
  EXPECT_EQ(options_.recorder.tensorboard, "board");
  EXPECT_EQ(options_.recorder.metrics, "m.csv");
  EXPECT_EQ(options_.process_group.backend, "gloo");
  EXPECT_TRUE(precision_.enabled);
  EXPECT_EQ(precision_.dtype, c10::kBFloat16);
  EXPECT_EQ(precision_.opt_level, "O2");
}

TEST_F(CommandLine, resume_takes_a_folder_or_means_the_newest) {
  parse({"--resume"});
  EXPECT_EQ(options_.resume, "");
  parse({"--resume", "runs/step-00000003"});
  EXPECT_EQ(options_.resume, "runs/step-00000003");
}

TEST_F(CommandLine, numbers_out_of_range_and_unknown_levels_are_refused) {
  const std::vector<std::vector<std::string>> refused = {{"--epochs", "99999999999999999999"},
                                                         {"--lr", "nan"},
                                                         {"--lr", "inf"},
                                                         {"--lr", "-1"},
                                                         {"--batch-size", "9223372036854775807"},
                                                         {"--epochs", "-1"},
                                                         {"--epochs", "x"},
                                                         {"--batch-size", "0"},
                                                         {"--workers", "-1"},
                                                         {"--amp", "fp8"},
                                                         {"--amp", "fp16", "--opt-level", "O4"},
                                                         {"--opt-level", "O2"},
                                                         {"--local_rank", "-1"}};
  for (const auto& arguments : refused) {
    EXPECT_THROW(parse(arguments), CLI::ParseError) << arguments.front() << ' ' << arguments.back();
  }
}

TEST_F(CommandLine, old_launchers_local_rank_counts_where_the_variable_is_missing) {
  ::setenv("RANK", "3", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "localhost", 1);
  ::setenv("MASTER_PORT", "1", 1);
  parse({"--local-rank=1"});
  ASSERT_TRUE(options_.process_group.rank_info);
  EXPECT_EQ(options_.process_group.rank_info->rank, 3);
  EXPECT_EQ(options_.process_group.rank_info->local_rank, 1);
  ::setenv("LOCAL_RANK", "0", 1);
  parse({"--local_rank", "1"});
  EXPECT_EQ(options_.process_group.rank_info->local_rank, 0) << "LOCAL_RANK comes first";
  ::setenv("RANK", "4", 1);
  EXPECT_THROW(parse({"--local_rank", "1"}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
