// What a program's command line makes of its options.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/training/command_line.h>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

class CommandLine {
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

TEST_CASE_METHOD(CommandLine, "CommandLine: what the options hold is the default") {
  parse({});
  CHECK(options_.epochs == 5);
  CHECK(options_.lr == 0.25);
  CHECK(options_.loader.batch_size == 16);
  CHECK(options_.checkpoint_dir == "runs");
  CHECK(options_.resume == std::nullopt);
  CHECK(options_.recorder.tensorboard == "");
  CHECK(options_.process_group.backend == "");
  UNSCOPED_INFO("the environment tells");
  CHECK_FALSE(options_.process_group.rank_info);
  CHECK_FALSE(precision_.enabled);
  const std::map<std::string, std::string> shown = {
      {"--epochs", "5"}, {"--lr", "0.25"}, {"--batch-size", "16"}, {"--checkpoint-dir", "runs"}, {"--opt-level", "O1"}};
  for (const auto& [name, value] : shown) {
    INFO("--help");
    CHECK(app_.get_option(name)->get_default_str() == value);
  }
}

TEST_CASE_METHOD(CommandLine, "CommandLine: every option reaches its setting") {
  parse({"--epochs",      "7",     "--lr",        "0.5",   "--seed",           "18446744073709551615",
         "--batch-size",  "8",     "--workers",   "0",     "--checkpoint-dir", "there",
         "--tensorboard", "board", "--metrics",   "m.csv", "--backend",        "gloo",
         "--amp",         "bf16",  "--opt-level", "O2"});
  CHECK(options_.epochs == 7);
  CHECK(options_.lr == 0.5);
  CHECK(options_.seed == 18446744073709551615U);
  CHECK(options_.loader.batch_size == 8);
  CHECK(options_.loader.workers == 0);
  CHECK(options_.checkpoint_dir == "there");
  CHECK(options_.recorder.tensorboard == "board");
  CHECK(options_.recorder.metrics == "m.csv");
  CHECK(options_.process_group.backend == "gloo");
  CHECK(precision_.enabled);
  CHECK(precision_.dtype == c10::kBFloat16);
  CHECK(precision_.opt_level == "O2");
}

TEST_CASE_METHOD(CommandLine, "CommandLine: resume takes a folder or means the newest") {
  parse({"--resume"});
  CHECK(options_.resume == "");
  parse({"--resume", "runs/step-00000003"});
  CHECK(options_.resume == "runs/step-00000003");
}

TEST_CASE_METHOD(CommandLine, "CommandLine: of an option that is given twice the last one counts") {
  double own = 0;
  std::vector<int> several;
  app_.add_option("--own", own)->check(finite(0, 1));
  app_.add_option("--several", several)->delimiter(',')->trigger_on_parse();
  parse({"--epochs", "7", "--resume", "a", "--own=1", "--epochs=8", "--resume", "--amp", "fp16", "--amp", "bf16",
         "--own=0.5", "--several", "4,5", "--several", "1,2,3"});
  CHECK(options_.epochs == 8);
  CHECK(options_.resume == "");
  CHECK(precision_.dtype == c10::kBFloat16);
  CHECK(own == 0.5);
  CHECK(several == std::vector<int>{1, 2, 3});
  parse({"--resume", "a", "--resume", "b"});
  CHECK(options_.resume == "b");
}

TEST_CASE("CommandLine: a number out of range is refused in words that say what is expected") {
  const auto refusal = [](const CLI::Validator& validator, std::string text) { return validator(text); };
  const std::string finite_number = "expected a finite number", whole_number = "expected a whole number";
  for (const char* good : {"0", "1", "0.5", "1e-3"}) CHECK(refusal(finite(0, 1), good) == "");
  for (const std::string bad : {"nan", "-nan", "inf", "1.1", "-0.1", "x", ""}) {
    CHECK(refusal(finite(0, 1), bad) == finite_number + " in [0 - 1], got '" + bad + "'");
  }
  CHECK(refusal(finite(), "-1e300") == "");
  CHECK(refusal(finite(), "-inf") == finite_number + ", got '-inf'");
  CHECK(refusal(finite(0), "1e300") == "");
  CHECK(refusal(finite(0), "-1") == finite_number + " >= 0, got '-1'");
  CHECK(refusal(above(0), "1e-300") == "");
  for (const std::string bad : {"nan", "inf", "0", "-1"}) {
    CHECK(refusal(above(0), bad) == finite_number + " > 0, got '" + bad + "'");
  }
  CHECK(refusal(whole(1), "9223372036854775806") == "");
  for (const std::string bad : {"0", "-3", "1.5", "nan", ""}) {
    CHECK(refusal(whole(1), bad) == whole_number + " >= 1, got '" + bad + "'");
  }
  for (const std::string large : {"9223372036854775807", "9223372036854775808"}) {
    CHECK(refusal(whole(1), large) == whole_number + " >= 1 that 64 bits hold, got '" + large + "'");
  }
  CHECK(refusal(whole(1, 9), "10") == whole_number + " in [1 - 9], got '10'");
  CHECK(refusal(unsigned64(), "18446744073709551615") == "");
  for (const std::string bad : {"-1", "18446744073709551616", "3.5", "0x10", " 3", "+3", "nan", ""}) {
    CHECK(refusal(unsigned64(), bad) == whole_number + " in [0 - 18446744073709551615], got '" + bad + "'");
  }
}

TEST_CASE_METHOD(CommandLine, "CommandLine: outputs that cannot be written are refused, on the rank that writes them") {
  namespace fs = std::filesystem;
  const test::TemporaryFolder folder;
  const auto in = [&](const char* name) { return (folder.path() / name).string(); };
  std::ofstream(in("file"));
  std::ofstream(in("there.csv"));
  fs::create_directory(in("folder.csv"));
  const auto refusal = [](const CLI::Validator& validator, std::string text) { return validator(text); };
  for (const std::string& good :
       {in("new.csv"), in("there.csv"), in("a/b/c.jsonl"), std::string("x.csv"), std::string()}) {
    CHECK(refusal(metrics_file(), good) == "");
  }
  for (const std::string& good : {in(""), in("new"), in("a/b/"), std::string("runs"), std::string()}) {
    CHECK(refusal(output_folder(), good) == "");
  }
  const std::string no_folder = ": " + in("file") + " is not a folder";
  CHECK(refusal(metrics_file(), "rows.txt") == "rows.txt: expected a file that ends in .csv or .jsonl");
  CHECK(refusal(metrics_file(), in("folder.csv")) == in("folder.csv") + ": it is a folder");
  CHECK(refusal(metrics_file(), in("file/x.csv")) == in("file/x.csv") + no_folder);
  CHECK(refusal(output_folder(), in("file")) == in("file") + ": it is not a folder");
  CHECK(refusal(output_folder(), in("file/a/b")) == in("file/a/b") + no_folder);
  CHECK(refusal(output_folder(), "/proc/self/x").ends_with("cannot be written"));
  for (const char* option : {"--metrics", "--tensorboard", "--checkpoint-dir"}) {
    CHECK_THROWS_AS(parse({option, in("file/x.csv")}), CLI::ValidationError);
  }
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  CHECK(refusal(output_folder(), in("file/a/b")) == "");
  CHECK(refusal(metrics_file(), "rows.txt") != "");
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
}

TEST_CASE_METHOD(CommandLine, "CommandLine: numbers out of range and unknown levels are refused") {
  const std::vector<std::vector<std::string>> refused = {{"--epochs", "99999999999999999999"},
                                                         {"--lr", "nan"},
                                                         {"--lr", "inf"},
                                                         {"--lr", "-1"},
                                                         {"--batch-size", "9223372036854775807"},
                                                         {"--epochs", "-1"},
                                                         {"--epochs", "x"},
                                                         {"--seed", "-1"},
                                                         {"--batch-size", "0"},
                                                         {"--workers", "-1"},
                                                         {"--amp", "fp8"},
                                                         {"--amp", "fp16", "--opt-level", "O4"},
                                                         {"--opt-level", "O2"},
                                                         {"--local_rank", "-1"}};
  for (const auto& arguments : refused) {
    INFO(arguments.front() << ' ' << arguments.back());
    CHECK_THROWS_AS(parse(arguments), CLI::ParseError);
  }
}

TEST_CASE_METHOD(CommandLine, "CommandLine: an old launcher's --local_rank counts where the variable is missing") {
  ::setenv("RANK", "3", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "localhost", 1);
  ::setenv("MASTER_PORT", "1", 1);
  parse({"--local-rank=1"});
  REQUIRE(options_.process_group.rank_info);
  CHECK(options_.process_group.rank_info->rank == 3);
  CHECK(options_.process_group.rank_info->local_rank == 1);
  ::setenv("LOCAL_RANK", "0", 1);
  parse({"--local_rank", "1"});
  UNSCOPED_INFO("LOCAL_RANK comes first");
  CHECK(options_.process_group.rank_info->local_rank == 0);
  ::setenv("RANK", "4", 1);
  CHECK_THROWS_AS(parse({"--local_rank", "1"}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
