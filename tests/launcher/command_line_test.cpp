#include "launcher/command_line/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace launcher {
namespace {

Options parse(const std::vector<std::string>& arguments) {
  auto result = parse_command_line(arguments);
  if (const auto* exit = std::get_if<ExitRequest>(&result)) {
    ADD_FAILURE() << "refused: " << exit->text;
    return {};
  }
  return std::get<Options>(result);
}

ExitRequest refused(const std::vector<std::string>& arguments) {
  auto result = parse_command_line(arguments);
  if (std::holds_alternative<Options>(result)) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  return std::get<ExitRequest>(result);
}

using Words = std::vector<std::string>;

TEST(CommandLine, DefaultsAreTorchruns) {
  const Options options = parse({"prog"});
  EXPECT_EQ(options.nnodes, 1);
  EXPECT_EQ(options.node_rank, 0);
  EXPECT_EQ(options.nproc_per_node, Options::kUnset);
  EXPECT_FALSE(options.standalone);
  EXPECT_EQ(options.master_addr, "127.0.0.1");
  EXPECT_FALSE(options.master_port.has_value());
  EXPECT_EQ(options.role, "default");
  EXPECT_EQ(options.grace, std::chrono::seconds(30));
  EXPECT_EQ(options.program, Words{"prog"});
}

TEST(CommandLine, BothSpellingsAndBothFormsOfAValue) {
  for (const Words& words : std::vector<Words>{{"--nproc_per_node", "4"},
                                               {"--nproc-per-node", "4"},
                                               {"--nproc-per_node=4"},
                                               {"--nproc_per_node=4"},
                                               {"-n", "4"},
                                               {"-n4"},
                                               {"-n=4"},
                                               {"-np", "4"},
                                               {"-np=4"}}) {
    Words all = words;
    all.push_back("prog");
    EXPECT_EQ(parse(all).nproc_per_node, 4) << words.front();
  }
  EXPECT_EQ(parse({"--master-port", "29501", "prog"}).master_port, 29501);
  EXPECT_EQ(parse({"--master-addr=host7", "prog"}).master_addr, "host7");
  EXPECT_EQ(parse({"--nproc_per_node=cpu", "prog"}).nproc_per_node, Options::kOnePerCpu);
}

TEST(CommandLine, ProgramAndArgumentsAreVerbatim) {
  const Words program = {"prog", "--nproc_per_node", "9", "", "--", "-n", "$$x", "a b", "--help", "\xff\xfe", "%1"};
  Words all = {"-n", "2"};
  all.insert(all.end(), program.begin(), program.end());
  EXPECT_EQ(parse(all).program, program);
  EXPECT_EQ(parse(all).nproc_per_node, 2);
}

TEST(CommandLine, DoubleDashBeginsTheProgram) {
  EXPECT_EQ(parse({"--", "prog", "--x"}).program, (Words{"prog", "--x"}));
  EXPECT_EQ(parse({"-n", "2", "--", "--odd-name"}).program, Words{"--odd-name"});
  EXPECT_EQ(parse({"--", "--"}).program, Words{"--"});
}

TEST(CommandLine, AValueMayLookLikeAnOption) {
  EXPECT_EQ(parse({"--role", "--trainer", "prog"}).role, "--trainer");
  EXPECT_EQ(parse({"--role=a=b", "prog"}).role, "a=b");
}

TEST(CommandLine, TheLastOfSeveralEqualOptionsCounts) {
  EXPECT_EQ(parse({"-n", "2", "-n", "3", "prog"}).nproc_per_node, 3);
}

TEST(CommandLine, WhereTheOutputGoes) {
  const Options options = parse({"--log-dir", "logs", "-r", "1", "-t", "0:3,11:2", "--local-ranks-filter=0,11",
                                 "--duplicate-stdout-filters", "a,b", "--stdin", "3", "prog"});
  EXPECT_EQ(options.log_folder, "logs");
  EXPECT_TRUE(options.redirects.of_rank(5).out);
  EXPECT_FALSE(options.redirects.of_rank(5).err);
  EXPECT_TRUE(options.tee.of_rank(11).err);
  EXPECT_EQ(options.console_ranks, (std::vector<int>{0, 11}));
  EXPECT_EQ(options.output_filters, (Words{"a", "b"}));
  EXPECT_EQ(options.standard_input.rank, 3);
  EXPECT_EQ(parse({"--stdin=all", "prog"}).standard_input.to, StandardInput::To::kAll);
  EXPECT_EQ(parse({"--stdin=none", "prog"}).standard_input.to, StandardInput::To::kNone);
  EXPECT_EQ(parse({"--output-filename", "out", "prog"}).output_folder, "out");
}

TEST(CommandLine, HelpAndVersionAreAnswersNotErrors) {
  EXPECT_EQ(refused({"--help"}).status, 0);
  EXPECT_EQ(refused({"-h"}).status, 0);
  EXPECT_EQ(refused({"--version"}).status, 0);
  EXPECT_NE(refused({"--help"}).text.find("--grace"), std::string::npos);
}

TEST(CommandLine, MistypedOptionsGetASuggestion) {
  EXPECT_NE(refused({"--nproc_per_nodes", "2", "x"}).text.find("did you mean --nproc_per_node?"), std::string::npos);
  EXPECT_NE(refused({"--master-prot", "2", "x"}).text.find("did you mean --master_port?"), std::string::npos);
  EXPECT_NE(refused({"--nprc", "2", "x"}).text.find("did you mean --nproc_per_node?"), std::string::npos);
  EXPECT_NE(refused({"--zebra", "x"}).text.find("see ddprun --help"), std::string::npos);
}

TEST(CommandLine, TorchrunsWaysToSayTheSame) {
  EXPECT_EQ(parse({"--nnodes", "1:1", "x"}).nnodes, 1);
  EXPECT_EQ(parse({"--nnodes=2:2", "x"}).nnodes, 2);
  EXPECT_NE(refused({"--nnodes", "1:4", "x"}).text.find("cannot change during a job"), std::string::npos);
  const Options options = parse({"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=host0:4000", "--rdzv-backend=static",
                                 "--rdzv-conf=timeout=7,read_timeout=60", "x"});
  EXPECT_EQ(options.master_addr, "host0");
  EXPECT_EQ(options.master_port, 4000);
  EXPECT_EQ(options.join_timeout, std::chrono::seconds(7));
  EXPECT_EQ(parse({"--numa-binding=node", "x"}).binding, Options::Binding::kNuma);
  const Words ignored = {"--monitor-interval=1",        "--start-method=fork", "--local-addr=h", "--rdzv-backend=c10d",
                         "--rdzv-endpoint=localhost:0", "--use-env",           "--standalone",   "x"};
  EXPECT_EQ(parse(ignored).program, Words{"x"});
}

TEST(CommandLine, VariablesStandInForOptions) {
  setenv("PET_NPROC_PER_NODE", "3", 1);
  setenv("PET_STANDALONE", "1", 1);
  setenv("PET_GRACE", "0.5", 1);
  setenv("PET_PREFIX", "<{rank}>", 1);
  const Options options = parse({"x"});
  const Options overridden = parse({"-n", "5", "x"});
  setenv("PET_GRACE", "soon", 1);
  const ExitRequest bad = refused({"x"});
  for (const char* name : {"PET_NPROC_PER_NODE", "PET_STANDALONE", "PET_GRACE", "PET_PREFIX"}) unsetenv(name);
  EXPECT_EQ(options.nproc_per_node, 3);
  EXPECT_TRUE(options.standalone);
  EXPECT_EQ(options.grace, std::chrono::milliseconds(500));
  EXPECT_EQ(options.prefix, "<{rank}>");
  EXPECT_EQ(overridden.nproc_per_node, 5);
  EXPECT_NE(bad.text.find("--grace: expected seconds"), std::string::npos) << bad.text;
}

// Sets a variable as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(CommandLine, OutranksVariablesThatSayTheContrary) {
  {
    const Variable variable("PET_NO_PREFIX", "1");
    EXPECT_EQ(parse({"--prefix", "train"}).prefix, "[{rank}] ");
    EXPECT_TRUE(parse({"train"}).no_prefix);
  }
  {
    const Variable variable("PET_PREFIX", "x");
    const Options options = parse({"--no-prefix", "train"});
    EXPECT_TRUE(options.no_prefix);
    EXPECT_FALSE(options.prefix);
  }
  {
    const Variable variable("PET_MODULE", "1");
    EXPECT_FALSE(parse({"--run-path", "train"}).module);
    EXPECT_TRUE(parse({"-m", "train"}).module);
  }
  {
    const Variable variable("PET_TEE", "3");
    EXPECT_TRUE(parse({"--output_filename", "out", "train"}).tee.is_empty());
  }
  {
    const Variable variable("PET_RDZV_ENDPOINT", "theirs:1");
    EXPECT_EQ(parse({"--nnodes=2", "--master_addr=ours", "train"}).master_addr, "ours");
    EXPECT_EQ(parse({"--nnodes=2", "train"}).master_addr, "theirs");
  }
  {
    const Variable variable("PET_NNODES", "2");
    EXPECT_EQ(parse({"--standalone", "train"}).nnodes, 1);
    const Variable rank("PET_NODE_RANK", "1");
    const Variable port("PET_MASTER_PORT", "29500");
    const Options options = parse({"--standalone", "train"});
    EXPECT_EQ(options.nnodes, 1);
    EXPECT_EQ(options.node_rank, 0);
    EXPECT_FALSE(options.master_port);
  }
  {
    const Variable variable("PET_RDZV_CONF", "timeout=7");
    EXPECT_EQ(parse({"--join_timeout=3", "train"}).join_timeout.count(), 3000);
    EXPECT_EQ(parse({"train"}).join_timeout.count(), 7000);
  }
}

TEST(CommandLine, WhatContradictsItselfAmongVariablesOrOptionsIsRefused) {
  EXPECT_NE(refused({"--prefix", "--no_prefix", "train"}).text.find("exclude each other"), std::string::npos);
  const Variable first("PET_PREFIX", "x");
  const Variable second("PET_NO_PREFIX", "1");
  EXPECT_NE(refused({"train"}).text.find("exclude each other"), std::string::npos);
}

TEST(CommandLine, EmptyRendezvousOptionsAreAsIfLeftOut) {
  const Options options =
      parse({"--rdzv_endpoint", "", "--rdzv-id=", "--rdzv_conf=", "--rdzv_backend", "", "train", "x"});
  EXPECT_EQ(options.program, (Words{"train", "x"}));
  EXPECT_EQ(options.rdzv_endpoint, "");
  EXPECT_EQ(parse({"--rdzv_id=a", "--rdzv_id=", "train"}).rdzv_id, "");
  EXPECT_EQ(parse({"--rdzv_id=", "--rdzv_id=a", "train"}).rdzv_id, "a");
  const Variable variable("PET_RDZV_ID", "b");
  EXPECT_EQ(parse({"--rdzv_id=", "train"}).rdzv_id, "");
  EXPECT_EQ(parse({"--rdzv_id=a", "--rdzv_id=", "train"}).rdzv_id, "");
  EXPECT_NE(refused({"--log_dir=", "train"}).text.find("needs a value"), std::string::npos);
}

TEST(CommandLine, BadValuesAreOneLineAndStatus125) {
  for (const Words& words : std::vector<Words>{{"-n", "0", "x"},
                                               {"-n", "-3", "x"},
                                               {"-n", "2x", "x"},
                                               {"-n", "999999999999", "x"},
                                               {"-n", "", "x"},
                                               {"-n=", "x"},
                                               {"--nnodes", "0", "x"},
                                               {"--nnodes", "two", "x"},
                                               {"--node_rank", "1", "x"},
                                               {"--master_port", "65536", "x"},
                                               {"--master_port", "-1", "x"},
                                               {"--grace", "-1", "x"},
                                               {"--grace", "nan", "x"},
                                               {"--standalone", "--nnodes", "2", "x"},
                                               {"-m", "--no_python", "x"},
                                               {"--no_python=1", "x"},
                                               {"--redirects", "4", "x"},
                                               {"-t", "0:3,", "x"},
                                               {"--local_ranks_filter", "0-3", "x"},
                                               {"--stdin", "-1", "x"},
                                               {"--stdin", "some", "x"},
                                               {"--output_filename", "d", "-t", "3", "x"},
                                               {"-n"},
                                               {"-n", "2"},
                                               {""},
                                               {}}) {
    const ExitRequest exit = refused(words);
    EXPECT_EQ(exit.status, 125);
    EXPECT_EQ(exit.text.find('\n'), exit.text.size() - 1) << exit.text;
    EXPECT_EQ(exit.text.substr(0, 8), "ddprun: ");
  }
}

}  // namespace
}  // namespace launcher
