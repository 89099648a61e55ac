#include "launcher/plan/program.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/system/launch_error.h"
#include "launcher/system/temporary_folder.h"
#include "tests/support/catch.h"

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

TEST_CASE("WorkerArguments: modules and no Python") {
  Options options = with_program({"package.train", "a"});
  options.module = true;
  CHECK(worker_arguments(options, "python3") == Words{"python3", "-u", "-m", "package.train", "a"});
  options = with_program({"t.py"});
  options.no_python = true;
  CHECK(worker_arguments(options, "python3") == Words{"t.py"});
}

TEST_CASE("WorkerArguments: run path means Python whatever the name") {
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

TEST_CASE("ProgramOfRank: gets its local rank as the last argument") {
  Options options = with_program({"t.py", "a"});
  options.local_rank_argument = "local_rank";
  CHECK(arguments_of_rank(options, {"python3", "-u", "t.py", "a"}) ==
        Words{"python3", "-u", "t.py", "a", "--local_rank=3"});
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
    const std::string path = folder_.path() + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << "#!/bin/sh\n";
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
  TemporaryFolder folder_;
};

TEST_CASE_METHOD(FindExecutable, "FindExecutable: takes the first one in path that can be executed") {
  make("a/tool", 0644);
  const std::string second = make("b/tool", 0755);
  make("c/tool", 0755);
  const std::string path = folder_.path() + "/a:" + folder_.path() + "/b:" + folder_.path() + "/c";
  CHECK(find_executable("tool", path) == second);
}

TEST_CASE_METHOD(FindExecutable, "FindExecutable: a folder is no program") {
  std::filesystem::create_directories(folder_.path() + "/a/tool");
  CHECK(status_of("tool", folder_.path() + "/a") == ExitStatus::kNotFound);
  CHECK(status_of(folder_.path() + "/a/tool", "") == ExitStatus::kNotExecutable);
}

TEST_CASE_METHOD(FindExecutable, "FindExecutable: tells missing from not executable") {
  const std::string data = make("a/data", 0644);
  CHECK(status_of(data, "") == ExitStatus::kNotExecutable);
  CHECK(status_of("data", folder_.path() + "/a") == ExitStatus::kNotExecutable);
  CHECK(status_of(data + "/x", "") == ExitStatus::kNotFound);
  CHECK(status_of("nothing", folder_.path()) == ExitStatus::kNotFound);
}

TEST_CASE_METHOD(FindExecutable, "FindExecutable: an empty part of path is this folder") {
  const auto before = std::filesystem::current_path();
  make("tool", 0755);
  std::filesystem::current_path(folder_.path());
  CHECK(find_executable("tool", "/nonexistent:") == "./tool");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace launcher
