#include "launcher/options/command_line.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

Options parse(const std::vector<std::string>& arguments) {
  const auto result = parse_command_line(arguments);
  if (const auto* exit = std::get_if<ExitRequest>(&result)) FAIL("refused: " << exit->text);
  return std::get<Options>(result);
}

ExitRequest refused(const std::vector<std::string>& arguments) {
  const auto result = parse_command_line(arguments);
  if (std::holds_alternative<Options>(result)) FAIL("accepted");
  return std::get<ExitRequest>(result);
}

using Words = std::vector<std::string>;

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

TEST_CASE("CommandLine: defaults are torchrun's") {
  const Options options = parse({"prog"});
  CHECK(options.nnodes == 1);
  CHECK(options.node_rank == 0);
  CHECK(options.nproc_per_node == Options::kUnset);
  CHECK_FALSE(options.standalone);
  CHECK(options.master_addr == "127.0.0.1");
  CHECK_FALSE(options.master_port.has_value());
  CHECK(options.role == "default");
  CHECK(options.grace == std::chrono::seconds(30));
  CHECK(options.program == Words{"prog"});
}

TEST_CASE("CommandLine: both spellings and both forms of a value are taken") {
  for (const Words& words : std::vector<Words>{{"--nproc_per_node", "4"},
                                               {"--nproc-per-node", "4"},
                                               {"--nproc-per_node=4"},
                                               {"--nproc_per_node=4"},
                                               {"-n", "4"},
                                               {"-n4"},
                                               {"-n=4"},
                                               {"-np", "4"},
                                               {"-np=4"}}) {
    CAPTURE(words);
    Words all = words;
    all.push_back("prog");
    CHECK(parse(all).nproc_per_node == 4);
  }
  CHECK(parse({"--master-port", "29501", "prog"}).master_port == 29501);
  CHECK(parse({"--master-addr=host7", "prog"}).master_addr == "host7");
  CHECK(parse({"--nproc_per_node=cpu", "prog"}).nproc_per_node == Options::kOnePerCpu);
}

TEST_CASE("CommandLine: program and arguments are verbatim") {
  const Words program = {"prog", "--nproc_per_node", "9", "", "--", "-n", "$$x", "a b", "--help", "\xff\xfe", "%1"};
  Words all = {"-n", "2"};
  all.insert(all.end(), program.begin(), program.end());
  CHECK(parse(all).program == program);
  CHECK(parse(all).nproc_per_node == 2);
}

TEST_CASE("CommandLine: a double dash begins the program") {
  CHECK(parse({"--", "prog", "--x"}).program == Words{"prog", "--x"});
  CHECK(parse({"-n", "2", "--", "--odd-name"}).program == Words{"--odd-name"});
  CHECK(parse({"--", "--"}).program == Words{"--"});
}

TEST_CASE("CommandLine: a value may look like an option") {
  CHECK(parse({"--role", "--trainer", "prog"}).role == "--trainer");
  CHECK(parse({"--role=a=b", "prog"}).role == "a=b");
}

TEST_CASE("CommandLine: the last of several equal options counts") {
  CHECK(parse({"-n", "2", "-n", "3", "prog"}).nproc_per_node == 3);
}

TEST_CASE("CommandLine: options say where the output goes") {
  const Options options = parse({"--log-dir", "logs", "-r", "1", "-t", "0:3,11:2", "--local-ranks-filter=0,11",
                                 "--duplicate-stdout-filters", "a,b", "--stdin", "3", "prog"});
  CHECK(options.log_folder == "logs");
  CHECK(options.redirects.of_rank(5).out);
  CHECK_FALSE(options.redirects.of_rank(5).err);
  CHECK(options.tee.of_rank(11).err);
  CHECK(options.console_ranks == std::vector<int>{0, 11});
  CHECK(options.output_filters == Words{"a", "b"});
  CHECK(options.standard_input.rank == 3);
  CHECK(parse({"--stdin=all", "prog"}).standard_input.to == StandardInput::To::kAll);
  CHECK(parse({"--stdin=none", "prog"}).standard_input.to == StandardInput::To::kNone);
  CHECK(parse({"--output-filename", "out", "prog"}).output_folder == "out");
}

TEST_CASE("CommandLine: help and version are answers, not errors") {
  CHECK(refused({"--help"}).status == 0);
  CHECK(refused({"-h"}).status == 0);
  CHECK(refused({"--version"}).status == 0);
  CHECK_THAT(refused({"--help"}).text, ContainsSubstring("--grace"));
}

TEST_CASE("CommandLine: mistyped options get a suggestion") {
  CHECK_THAT(refused({"--nproc_per_nodes", "2", "x"}).text, ContainsSubstring("did you mean --nproc_per_node?"));
  CHECK_THAT(refused({"--master-prot", "2", "x"}).text, ContainsSubstring("did you mean --master_port?"));
  CHECK_THAT(refused({"--nprc", "2", "x"}).text, ContainsSubstring("did you mean --nproc_per_node?"));
  CHECK_THAT(refused({"--zebra", "x"}).text, ContainsSubstring("see ddprun --help"));
}

TEST_CASE("CommandLine: torchrun's ways to say the same are taken") {
  CHECK(parse({"--nnodes", "1:1", "x"}).nnodes == 1);
  CHECK(parse({"--nnodes=2:2", "x"}).nnodes == 2);
  CHECK_FALSE(parse({"--nnodes=2:2", "x"}).elastic.is_on());
  CHECK_THAT(refused({"--nnodes", "4:1", "x"}).text, ContainsSubstring("expected MIN:MAX"));
  for (const std::string text : {"timeout", "timeout=7,is_host", "timeout=", "=7"}) {
    CHECK_THAT(refused({"--rdzv_conf=" + text, "x"}).text, ContainsSubstring("--rdzv_conf: expected K=V,..."));
  }
  CHECK_THAT(refused({"--nnodes", "1:4", "x"}).text, ContainsSubstring("--rdzv_endpoint is missing"));
  CHECK_THAT(refused({"--nnodes", "1:4", "--rdzv_backend=static", "--master_addr=a", "x"}).text,
             ContainsSubstring("with --rdzv_backend static the number of nodes is fixed"));
  const Options elastic =
      parse({"--nnodes=1:4", "--rdzv_endpoint=host0:4000", "--rdzv_conf=last_call_timeout=5", "--join_restart",
             "--host_failures=3", "--restarts_per_hour=7", "--local_addr=b", "x"});
  CHECK(elastic.nnodes == 4);
  CHECK(elastic.elastic.min_nodes == 1);
  CHECK(elastic.elastic.last_call == std::chrono::seconds(5));
  CHECK(elastic.elastic.join_restart);
  CHECK(elastic.elastic.host_failures == 3);
  CHECK(elastic.elastic.restarts_per_hour == 7);
  CHECK(elastic.local_addr == "b");
  const Options options = parse({"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=host0:4000", "--rdzv-backend=static",
                                 "--rdzv-conf=timeout=7,read_timeout=60", "x"});
  CHECK(options.master_addr == "host0");
  CHECK(options.master_port == 4000);
  CHECK(options.join_timeout == std::chrono::seconds(7));
  CHECK(parse({"--numa-binding=node", "x"}).binding == Options::Binding::kNuma);
  const Words ignored = {"--monitor-interval=1",        "--start-method=fork", "--local-addr=h", "--rdzv-backend=c10d",
                         "--rdzv-endpoint=localhost:0", "--use-env",           "--standalone",   "x"};
  CHECK(parse(ignored).program == Words{"x"});
}

TEST_CASE("CommandLine: variables stand in for options") {
  const Variable ranks("PET_NPROC_PER_NODE", "3");
  const Variable standalone("PET_STANDALONE", "1");
  const Variable grace("PET_GRACE", "0.5");
  const Variable prefix("PET_PREFIX", "<{rank}>");
  const Options options = parse({"x"});
  CHECK(options.nproc_per_node == 3);
  CHECK(options.standalone);
  CHECK(options.grace == std::chrono::milliseconds(500));
  CHECK(options.prefix == "<{rank}>");
  CHECK(parse({"-n", "5", "x"}).nproc_per_node == 5);
  const Variable bad_grace("PET_GRACE", "soon");
  CHECK_THAT(refused({"x"}).text, ContainsSubstring("--grace: expected a number of seconds") &&
                                      EndsWith("got 'soon' (--grace is from PET_GRACE)\n"));
  CHECK_THAT(refused({"--grace=later", "x"}).text, EndsWith("got 'later'\n"));
  CHECK_THAT(refused({"--grave=1", "x"}).text, EndsWith("did you mean --grace?\n"));
}

TEST_CASE("CommandLine: outranks variables that say the contrary") {
  SECTION("no prefix") {
    const Variable variable("PET_NO_PREFIX", "1");
    CHECK(parse({"--prefix", "train"}).prefix == "[{rank}] ");
    CHECK(parse({"train"}).no_prefix);
  }
  SECTION("a prefix") {
    const Variable variable("PET_PREFIX", "x");
    const Options options = parse({"--no-prefix", "train"});
    CHECK(options.no_prefix);
    CHECK_FALSE(options.prefix);
  }
  SECTION("a module") {
    const Variable variable("PET_MODULE", "1");
    CHECK_FALSE(parse({"--run-path", "train"}).module);
    CHECK(parse({"-m", "train"}).module);
  }
  SECTION("output in files") {
    const Variable variable("PET_TEE", "3");
    CHECK(parse({"--output_filename", "out", "train"}).tee.is_empty());
  }
  SECTION("the endpoint of the rendezvous") {
    const Variable variable("PET_RDZV_ENDPOINT", "theirs:1");
    CHECK(parse({"--nnodes=2", "--master_addr=ours", "train"}).master_addr == "ours");
    CHECK(parse({"--nnodes=2", "train"}).master_addr == "theirs");
  }
  SECTION("several nodes") {
    const Variable variable("PET_NNODES", "2");
    CHECK(parse({"--standalone", "train"}).nnodes == 1);
    const Variable rank("PET_NODE_RANK", "1");
    const Variable port("PET_MASTER_PORT", "29500");
    const Options options = parse({"--standalone", "train"});
    CHECK(options.nnodes == 1);
    CHECK(options.node_rank == 0);
    CHECK_FALSE(options.master_port);
  }
  SECTION("the time to join") {
    const Variable variable("PET_RDZV_CONF", "timeout=7");
    CHECK(parse({"--join_timeout=3", "train"}).join_timeout.count() == 3000);
    CHECK(parse({"train"}).join_timeout.count() == 7000);
  }
}

TEST_CASE("CommandLine: what contradicts itself among variables or options is refused") {
  CHECK_THAT(refused({"--prefix", "--no_prefix", "train"}).text, ContainsSubstring("not both"));
  const Variable first("PET_PREFIX", "x");
  const Variable second("PET_NO_PREFIX", "1");
  CHECK_THAT(refused({"train"}).text,
             EndsWith("not both (--prefix is from PET_PREFIX, --no_prefix is from PET_NO_PREFIX)\n"));
}

TEST_CASE("CommandLine: empty rendezvous options are as if left out") {
  const Options options =
      parse({"--rdzv_endpoint", "", "--rdzv-id=", "--rdzv_conf=", "--rdzv_backend", "", "train", "x"});
  CHECK(options.program == Words{"train", "x"});
  CHECK(options.rdzv_endpoint == "");
  CHECK(parse({"--rdzv_id=a", "--rdzv_id=", "train"}).rdzv_id == "");
  CHECK(parse({"--rdzv_id=", "--rdzv_id=a", "train"}).rdzv_id == "a");
  const Variable variable("PET_RDZV_ID", "b");
  CHECK(parse({"--rdzv_id=", "train"}).rdzv_id == "");
  CHECK(parse({"--rdzv_id=a", "--rdzv_id=", "train"}).rdzv_id == "");
  CHECK_THAT(refused({"--log_dir=", "train"}).text, ContainsSubstring("needs a value"));
}

TEST_CASE("CommandLine: a bad value is one line and status 125") {
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
    CAPTURE(words);
    const ExitRequest exit = refused(words);
    CHECK(exit.status == 125);
    CAPTURE(exit.text);
    CHECK(exit.text.find('\n') == exit.text.size() - 1);
    CHECK_THAT(exit.text, StartsWith("ddprun: "));
  }
}

}  // namespace
}  // namespace launcher
