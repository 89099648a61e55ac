#include "launcher/options/program_hints.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Words = std::vector<std::string>;

Options options_for(Words words) {
  Options options;
  options.program = std::move(words);
  return options;
}

std::string hint(const std::string& program) {
  return program_hint(options_for({program}));
}

TEST_CASE("ProgramHints: words that are not the name of a program") {
  CHECK_THAT(hint("train.py --lr 0.1"), ContainsSubstring("leave them out: ddprun ... train.py --lr 0.1"));
  CHECK_THAT(hint("cd pkg; python3 train.py"), ContainsSubstring("sh -c 'cd pkg; python3 train.py'"));
  CHECK_THAT(hint("torchrun"), ContainsSubstring("leave it out"));
  CHECK_THAT(hint("4"), ContainsSubstring("-n 4 before"));
  CHECK_THAT(hint("A=1"), ContainsSubstring("-x A=1"));
  CHECK_THAT(hint("statsu"), ContainsSubstring("ddprun status"));
  CHECK_THAT(hint("timelin"), ContainsSubstring("ddprun timeline"));
  CHECK_THAT(hint("\u2013\u2013standalone"), ContainsSubstring("long dash: write --standalone"));
  CHECK_THAT(hint("\u2013-nnodes=2"), ContainsSubstring("write --nnodes=2"));
  CHECK_THAT(hint("\u2212n"), ContainsSubstring("write -n"));
  CHECK_THAT(hint("1"), ContainsSubstring("for 1 rank write"));
  CHECK_THAT(hint("slots=2"), ContainsSubstring("-H HOST:2"));
  CHECK_THAT(hint("nproc-per-node=2"), ContainsSubstring("--nproc-per-node=2"));
  CHECK_THAT(hint("version"), ContainsSubstring("ddprun --version"));
  CHECK_THAT(hint("-n"), ContainsSubstring("come before it"));
  CHECK(hint("quite-another-thing") == "");
  CHECK(hint("tp") == "");
}

TEST_CASE("ProgramHints: the file whose name is nearly this one") {
  const ddp::test::TemporaryFolder folder;
  ddp::test::write_file(folder / "train.py", "");
  CHECK(hint(folder / "trian.py") == " (did you mean " + (folder / "train.py").string() + "?)");
  CHECK(hint(folder / "train.py") == "");
  ddp::test::write_file(folder / "train.pyc", "");
  CHECK(hint(folder / "train.pyc") == "");  // what is wrong is not its name
  CHECK(hint(folder / "evaluate.py") == "");
  CHECK_THAT(hint("./no-such-file"), ContainsSubstring("the current folder is /"));
  Options options = options_for({"./trian.py"});
  options.working_folder = folder.path();
  CHECK(program_hint(options) == " (did you mean ./train.py?)");
}

TEST_CASE("ProgramHints: a value behind an option that takes it in the same word only") {
  Options options = options_for({"/opt/openmpi"});
  options.own_arguments = {"--prefix"};
  CHECK_THAT(program_hint(options), ContainsSubstring("leave out --prefix /opt/openmpi"));
  options.own_arguments = {"--prefix=x"};
  CHECK(program_hint(options) == "");
}

TEST_CASE("ProgramHints: the number of ranks behind the program is said where there is none in front") {
  CHECK(misplaced_ranks(options_for({"train.py", "-n", "2"})) ==
        "only 1 rank is started: -n 2 comes after the program, so it is passed to the program. Put ddprun's options "
        "before the program: ddprun -n "
        "2 train.py");
  CHECK(misplaced_ranks(options_for({"./train", "--nproc-per-node=gpu"})));
  CHECK(misplaced_ranks(options_for({"train", "-np", "2"})));
  CHECK(misplaced_ranks(options_for({"python", "train.py", "-n", "2"})));
  CHECK(misplaced_ranks(options_for({"./train", "-n2"})));
  CHECK_FALSE(misplaced_ranks(options_for({"head", "-n", "2"})));
  CHECK_FALSE(misplaced_ranks(options_for({"./train", "-n", "x"})));
  CHECK_FALSE(misplaced_ranks(options_for({"./train", "-n"})));
  CHECK_FALSE(misplaced_ranks(options_for({"./train", "--", "-n", "2"})));
  CHECK_FALSE(misplaced_ranks({}));
  Options counted = options_for({"train.py", "-n", "2"});
  counted.nproc_per_node = 1;
  CHECK_FALSE(misplaced_ranks(counted));
}

TEST_CASE("ProgramHints: a module's name has no ending, and variables that are exported exist") {
  Options options = options_for({"train.py"});
  CHECK_FALSE(suspicious_module(options));
  options.module = true;
  CHECK_THAT(suspicious_module(options).value_or(""), ContainsSubstring("ddprun -m train,"));
  options.program = {"./package"};
  CHECK_THAT(suspicious_module(options).value_or(""), ContainsSubstring("ddprun --run_path ./package"));
  options.program = {"torch.distributed.launch", "train.py"};
  CHECK_THAT(suspicious_module(options).value_or(""), ContainsSubstring("leave -m torch.distributed.launch out"));
  options.program = {"package.train"};
  CHECK_FALSE(suspicious_module(options));
  options.exported = {"PATH", "A=1", "DDPRUN_TEST_NO_SUCH"};
  CHECK(suspicious_exports(options).size() == 1U);
  options.exported = {"A=1,B=2"};
  REQUIRE(suspicious_exports(options).size() == 1U);
  CHECK_THAT(suspicious_exports(options)[0], ContainsSubstring("write -x A=1 -x B=2"));
  options.exported = {"A=1,2", "A=x,y=2"};
  CHECK(suspicious_exports(options).empty());
}

TEST_CASE("ProgramHints: a number after -x NAME is its value") {
  Options options = options_for({"1", "./train"});
  options.own_arguments = {"--export=A"};
  CHECK_THAT(program_hint(options), ContainsSubstring("write -x A=1"));
  options.own_arguments = {"--export=A=2"};
  CHECK_THAT(program_hint(options), ContainsSubstring("write -n 1"));
}

TEST_CASE("ProgramHints: a flag has no value") {
  Options options = options_for({"true", "train.py"});
  options.own_arguments = {"--standalone"};
  CHECK_THAT(boolean_as_program(options).value_or(""), ContainsSubstring("--standalone takes no value"));
  options.program = {"true"};
  CHECK_FALSE(boolean_as_program(options));
  options = options_for({"true", "x"});
  options.own_arguments = {"--nproc_per_node=2"};
  CHECK_FALSE(boolean_as_program(options));
}

TEST_CASE("ProgramHints: a command of the shell has its words behind it") {
  CHECK_THAT(program_hint(options_for({"cd", "package"})), ContainsSubstring("sh -c 'cd ..."));
}

TEST_CASE("ProgramHints: without a program the word that was taken for a value is named") {
  CHECK_THAT(no_program_text(Words{"--rdzv_id", "train.py"}),
             ContainsSubstring("'train.py' was taken as the value of --rdzv_id"));
  CHECK_THAT(no_program_text(Words{"--mca", "btl", "./a"}), ContainsSubstring("'./a' was taken as the value of --mca"));
  for (const Words& words : {Words{}, Words{"-n", "2"}, Words{"--standalone"}, Words{"--"}})
    CHECK(no_program_text(words) == "no program given: ddprun [OPTIONS] PROGRAM [ARGUMENTS...]");
}

}  // namespace
}  // namespace launcher
