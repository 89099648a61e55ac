#include "launcher/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "launcher/launch_error.h"
#include "launcher/temporary_folder.h"

namespace launcher {
namespace {

using Words = std::vector<std::string>;

Options with_program(Words program) {
  Options options;
  options.program = std::move(program);
  return options;
}

TEST(WorkerArguments, ProgramsAreTakenAsTheyAre) {
  EXPECT_EQ(worker_arguments(with_program({"./train", "--x"}), "python3"), (Words{"./train", "--x"}));
}

TEST(WorkerArguments, PythonFilesRunUnbuffered) {
  EXPECT_EQ(worker_arguments(with_program({"t.py", "a"}), "/opt/python"), (Words{"/opt/python", "-u", "t.py", "a"}));
}

TEST(WorkerArguments, ModulesAndNoPython) {
  Options options = with_program({"package.train", "a"});
  options.module = true;
  EXPECT_EQ(worker_arguments(options, "python3"), (Words{"python3", "-u", "-m", "package.train", "a"}));
  options = with_program({"t.py"});
  options.no_python = true;
  EXPECT_EQ(worker_arguments(options, "python3"), Words{"t.py"});
}

class FindExecutable : public testing::Test {
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

TEST_F(FindExecutable, TakesTheFirstOneInPathThatCanBeExecuted) {
  make("a/tool", 0644);
  const std::string second = make("b/tool", 0755);
  make("c/tool", 0755);
  const std::string path = folder_.path() + "/a:" + folder_.path() + "/b:" + folder_.path() + "/c";
  EXPECT_EQ(find_executable("tool", path), second);
}

TEST_F(FindExecutable, AFolderIsNoProgram) {
  std::filesystem::create_directories(folder_.path() + "/a/tool");
  EXPECT_EQ(status_of("tool", folder_.path() + "/a"), ExitStatus::kNotFound);
  EXPECT_EQ(status_of(folder_.path() + "/a/tool", ""), ExitStatus::kNotExecutable);
}

TEST_F(FindExecutable, TellsMissingFromNotExecutable) {
  const std::string data = make("a/data", 0644);
  EXPECT_EQ(status_of(data, ""), ExitStatus::kNotExecutable);
  EXPECT_EQ(status_of("data", folder_.path() + "/a"), ExitStatus::kNotExecutable);
  EXPECT_EQ(status_of(data + "/x", ""), ExitStatus::kNotFound);
  EXPECT_EQ(status_of("nothing", folder_.path()), ExitStatus::kNotFound);
}

TEST_F(FindExecutable, AnEmptyPartOfPathIsThisFolder) {
  const auto before = std::filesystem::current_path();
  make("tool", 0755);
  std::filesystem::current_path(folder_.path());
  EXPECT_EQ(find_executable("tool", "/nonexistent:"), "./tool");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace launcher
