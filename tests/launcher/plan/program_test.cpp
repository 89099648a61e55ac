#include "launcher/plan/program.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Words = std::vector<std::string>;

Options with_program(Words program) {
  Options options;
  options.program = std::move(program);
  return options;
}

TEST_CASE("WorkerArguments: programs are taken as they are") {
  CHECK(worker_arguments(with_program({"./train", "--x"}), "python3") == Words{"./train", "--x"});
}

TEST_CASE("WorkerArguments: Python files run unbuffered") {
  CHECK(worker_arguments(with_program({"t.py", "a"}), "/opt/python") == Words{"/opt/python", "-u", "t.py", "a"});
}

TEST_CASE("WorkerArguments: modules run in Python, and nothing does that must not") {
  Options options = with_program({"package.train", "a"});
  options.module = true;
  CHECK(worker_arguments(options, "python3") == Words{"python3", "-u", "-m", "package.train", "a"});
  options = with_program({"t.py"});
  options.no_python = true;
  CHECK(worker_arguments(options, "python3") == Words{"t.py"});
}

TEST_CASE("WorkerArguments: a run path means Python, whatever the name") {
  Options options = with_program({"folder_with_main", "a"});
  options.run_path = true;
  CHECK(worker_arguments(options, "python3") == Words{"python3", "-u", "folder_with_main", "a"});
}

constexpr RankPlace kPlace{.rank = 11, .local_rank = 3, .world_size = 16, .local_world_size = 8};

Words arguments_of_rank(const Options& options, Words arguments) {
  return program_of_rank({.file = "f", .arguments = std::move(arguments), .shell_arguments = {}}, options, kPlace)
      .value()
      .arguments;
}

TEST_CASE("ProgramOfRank: is the same for all unless asked for") {
  CHECK_FALSE(program_of_rank({}, with_program({"t", "${rank}"}), kPlace).has_value());
}

TEST_CASE("ProgramOfRank: gets its local rank before its own arguments") {
  Options options = with_program({"t.py", "a"});
  options.local_rank_argument = "local_rank";
  CHECK(arguments_of_rank(options, {"python3", "-u", "t.py", "a"}) ==
        Words{"python3", "-u", "t.py", "--local_rank=3", "a"});
}

TEST_CASE("ProgramOfRank: expands its fields in the user's arguments only") {
  Options options =
      with_program({"${rank}", "a${local_rank}b", "$$x", "${x", "${x}${rank}/${world_size}", "${a${rank}}"});
  options.expand_arguments = true;
  CHECK(arguments_of_rank(options, options.program) == Words{"${rank}", "a3b", "$$x", "${x", "${x}11/16", "${a11}"});
}

TEST_CASE("ProgramOfRank: a script without a shebang gets the same") {
  Options options = with_program({"./t", "${local_rank}"});
  options.expand_arguments = true;
  const auto own = program_of_rank(
      {.file = "./t", .arguments = {"./t", "${local_rank}"}, .shell_arguments = {"/bin/sh", "./t", "${local_rank}"}},
      options, kPlace);
  CHECK(own.value().shell_arguments == Words{"/bin/sh", "./t", "3"});
}

class FindExecutable {
 protected:
  std::string make(const std::string& name, mode_t mode) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    ddp::test::write_file(path, "#!/bin/sh\n");
    chmod(path.c_str(), mode);
    return path;
  }
  ExitStatus status_of(const std::string& name, const std::string& path) {
    try {
      find_executable(name, path);
    } catch (const LaunchError& error) {
      return error.status();
    }
    return ExitStatus::kSuccess;
  }
  ddp::test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(FindExecutable, "FindExecutable: takes the first one in PATH that can be executed") {
  make("a/tool", 0644);
  const std::string second = make("b/tool", 0755);
  make("c/tool", 0755);
  const std::string here = folder_.path();
  CHECK(find_executable("tool", here + "/a:" + here + "/b:" + here + "/c") == second);
}

TEST_CASE_METHOD(FindExecutable, "FindExecutable: a folder is not a program") {
  std::filesystem::create_directories(folder_ / "a/tool");
  CHECK(status_of("tool", folder_ / "a") == ExitStatus::kNotFound);
  CHECK(status_of(folder_ / "a/tool", "") == ExitStatus::kNotExecutable);
}

TEST_CASE_METHOD(FindExecutable, "FindExecutable: tells missing from not executable") {
  const std::string data = make("a/data", 0644);
  CHECK(status_of(data, "") == ExitStatus::kNotExecutable);
  CHECK(status_of("data", folder_ / "a") == ExitStatus::kNotExecutable);
  CHECK(status_of(data + "/x", "") == ExitStatus::kNotFound);
  CHECK(status_of("nothing", folder_.path()) == ExitStatus::kNotFound);
}

TEST_CASE_METHOD(FindExecutable, "FindExecutable: an empty part of PATH is this folder") {
  const auto before = std::filesystem::current_path();
  make("tool", 0755);
  std::filesystem::current_path(folder_.path());
  CHECK(find_executable("tool", "/nonexistent:") == "./tool");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace launcher
