#include "launcher/local/processes/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/open_files.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// Starts workers in a folder of their own, and waits for each.
class SpawnTest {
  // What a worker reads until it executes.
  struct Texts {
    std::vector<std::string> arguments{};
    std::vector<char*> pointers{};
    std::string path = "PATH=/usr/local/bin:/usr/bin:/bin";
    std::vector<char*> environment{};
  };

 protected:
  SpawnTest() {
    options_.working_folder = folder_.path().string();
    ::sigprocmask(SIG_SETMASK, nullptr, &start_.mask);
    ::getrlimit(RLIMIT_NOFILE, &start_.open_files);
    start_.options = &options_;
  }
  ~SpawnTest() {
    for (const pid_t pid : running_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  pid_t spawn(Spawner& spawner, std::vector<std::string> arguments, SpawnRequest request = {}) {
    Texts& texts = texts_.emplace_back(Texts{.arguments = std::move(arguments)});
    for (std::string& argument : texts.arguments) texts.pointers.push_back(argument.data());
    texts.pointers.push_back(nullptr);
    texts.environment = {texts.path.data(), nullptr};
    request.file = texts.arguments.front().c_str();
    request.arguments = texts.pointers.data();
    request.environment = texts.environment.data();
    const SpawnedProcess process = spawner.spawn(request);
    running_.push_back(process.pid);
    return process.pid;
  }
  pid_t spawn_shell(Spawner& spawner, const std::string& script, SpawnRequest request = {}) {
    return spawn(spawner, {"/bin/sh", "-c", script}, request);
  }
  int wait(pid_t pid) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    std::erase(running_, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run(const std::string& script, SpawnRequest request = {}) {
    Spawner spawner(start_);
    const pid_t pid = spawn_shell(spawner, script, request);
    spawner.open_gate();
    return wait(pid);
  }
  std::string content(const std::string& name) const { return ddp::test::read_file(folder_ / name); }

  ddp::test::TemporaryFolder folder_;
  Options options_;
  WorkerStart start_;
  std::vector<pid_t> running_;
  std::list<Texts> texts_;
};

TEST_CASE_METHOD(SpawnTest, "Spawn: nobody executes before the gate opens, and then all do") {
  Spawner spawner(start_);
  std::vector<pid_t> workers;
  for (int i = 0; i < 5; ++i) workers.push_back(spawn_shell(spawner, "echo text >file_" + std::to_string(i)));
  for (const pid_t worker : workers) {
    while (identify(worker)->state != 'S') std::this_thread::sleep_for(1ms);  // it waits at the gate
  }
  CHECK(folder_.is_empty());
  spawner.open_gate();
  for (const pid_t worker : workers) CHECK(wait(worker) == 0);
  for (int i = 0; i < 5; ++i) CHECK(content("file_" + std::to_string(i)) == "text\n");
}

TEST_CASE_METHOD(SpawnTest, "Spawn: a worker that is killed at the gate does not keep the others") {
  Spawner spawner(start_);
  const pid_t killed = spawn_shell(spawner, "echo text >killed");
  const pid_t other = spawn_shell(spawner, "echo text >other");
  REQUIRE(::kill(killed, SIGKILL) == 0);
  CHECK(wait(killed) == 128 + SIGKILL);
  spawner.open_gate();
  CHECK(wait(other) == 0);
  CHECK(content("killed") == "");
  CHECK(spawner.exec_error(killed) == 0);
}

TEST_CASE_METHOD(SpawnTest, "Spawn: workers at the gate go with the launcher") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    Spawner spawner(start_);
    const pid_t worker = spawn_shell(spawner, "echo text >file");
    [[maybe_unused]] const ssize_t written = ::write(writer.get(), &worker, sizeof worker);
    ::_exit(0);
  }
  writer.reset();
  pid_t worker = 0;
  REQUIRE(::read(reader.get(), &worker, sizeof worker) == sizeof worker);
  REQUIRE(::waitpid(launcher, nullptr, 0) == launcher);
  char byte = 0;
  CHECK(::read(reader.get(), &byte, 1) == 0);  // the worker had the pipe, too: it is gone
}

TEST_CASE_METHOD(SpawnTest, "Spawn: each worker leads a group of its own") {
  Spawner spawner(start_);
  const pid_t first = spawn_shell(spawner, "exit 0");
  const pid_t second = spawn_shell(spawner, "exit 0");
  CHECK(::getpgid(first) == first);
  CHECK(::getpgid(second) == second);
  spawner.open_gate();
  CHECK(wait(first) == 0);
  CHECK(wait(second) == 0);
}

TEST_CASE_METHOD(SpawnTest, "Spawn: tells of each worker why the kernel refused it") {
  ddp::test::write_file(folder_ / "text", "no program");
  ::mkdir((folder_ / "folder").c_str(), 0700);
  Spawner spawner(start_);
  const pid_t missing = spawn(spawner, {"./missing"});
  const pid_t below_file = spawn(spawner, {"./text/x"});
  const pid_t text = spawn(spawner, {"./text"});
  const pid_t folder = spawn(spawner, {"./folder"});
  const pid_t own = spawn_shell(spawner, "exit 127");
  spawner.open_gate();
  CHECK(wait(missing) == 127);
  CHECK(wait(below_file) == 127);
  CHECK(wait(text) == 126);
  CHECK(wait(folder) == 126);
  CHECK(wait(own) == 127);
  CHECK(spawner.exec_error(missing) == ENOENT);
  CHECK(spawner.exec_error(below_file) == ENOTDIR);
  CHECK(spawner.exec_error(text) == EACCES);
  CHECK(spawner.exec_error(folder) == EACCES);
  CHECK(spawner.exec_error(own) == 0);
  CHECK(spawner.exec_error(missing) == ENOENT);  // asked again
}

TEST_CASE_METHOD(SpawnTest,
                 "Spawn: a folder that is gone, or a CPU that does not exist, is a failure of the worker alone") {
  const CpuBinding binding{.cpus = {100'000}};
  Spawner spawner(start_);
  const pid_t bound = spawn_shell(spawner, "exit 0", {.binding = &binding});
  const pid_t other = spawn_shell(spawner, "exit 0");
  spawner.open_gate();
  CHECK(wait(bound) == 126);
  CHECK(spawner.exec_error(bound) == EINVAL);
  CHECK(wait(other) == 0);
  options_.working_folder += "/missing";
  Spawner elsewhere(start_);
  const pid_t moved = spawn_shell(elsewhere, "exit 0");
  elsewhere.open_gate();
  CHECK(wait(moved) == 127);
  CHECK(elsewhere.exec_error(moved) == ENOENT);
}

TEST_CASE_METHOD(SpawnTest, "Spawn: text without a first line is run by the shell where that is wanted") {
  ddp::test::write_file(folder_ / "script", "echo \"$1\" >file\n");
  std::filesystem::permissions(folder_ / "script", std::filesystem::perms::owner_all);
  std::vector<std::string> words = {"/bin/sh", "./script", "word"};
  std::vector<char*> shell = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  Spawner spawner(start_);
  const pid_t by_shell = spawn(spawner, {"./script", "word"}, {.shell_arguments = shell.data()});
  const pid_t refused = spawn(spawner, {"./script", "word"});
  spawner.open_gate();
  CHECK(wait(by_shell) == 0);
  CHECK(content("file") == "word\n");
  CHECK(wait(refused) == 126);
  CHECK(spawner.exec_error(refused) == ENOEXEC);
}

TEST_CASE_METHOD(SpawnTest, "Spawn: the descriptors are the worker's standard ones, and only they") {
  ddp::test::write_file(folder_ / "input", "typed\n");
  const UniqueFd input(::open((folder_ / "input").c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd output(::open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd error(::open((folder_ / "error").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::string numbers = std::to_string(input.get()) + " " + std::to_string(output.get());
  CHECK(run("cat; echo err >&2; for fd in " + numbers + "; do [ -e /proc/self/fd/$fd ] && echo open; done; exit 0",
            {.stdin_fd = input.get(), .stdout_fd = output.get(), .stderr_fd = error.get()}) == 0);
  CHECK(content("output") == "typed\n");
  CHECK(content("error") == "err\n");
}

TEST_CASE_METHOD(SpawnTest, "Spawn: one descriptor may be both outputs") {
  const UniqueFd both(::open((folder_ / "both").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  CHECK(run("echo out; echo err >&2", {.stdout_fd = both.get(), .stderr_fd = both.get()}) == 0);
  CHECK(content("both") == "out\nerr\n");
}

TEST_CASE_METHOD(SpawnTest, "Spawn: the worker gets the user's signals and limit of open files back") {
  sigset_t blocked;
  ::sigfillset(&blocked);
  sigset_t before;
  REQUIRE(::sigprocmask(SIG_BLOCK, &blocked, &before) == 0);
  ::sigemptyset(&start_.mask);
  ::sigaddset(&start_.mask, SIGUSR2);
  const rlimit original = raise_open_files();
  start_.open_files = original;
  start_.open_files.rlim_cur = 77;
  const UniqueFd output(::open((folder_ / "mask").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Spawner spawner(start_);
  const pid_t grep = spawn(spawner, {"/bin/grep", "SigBlk", "/proc/self/status"}, {.stdout_fd = output.get()});
  spawner.open_gate();
  CHECK(wait(grep) == 0);
  CHECK(run("ulimit -n >files") == 0);
  CHECK(content("mask") == "SigBlk:\t0000000000000800\n");
  CHECK(content("files") == "77\n");
  ::setrlimit(RLIMIT_NOFILE, &original);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE_METHOD(SpawnTest, "Spawn: a process descriptor is readable once the worker has ended") {
  Spawner spawner(start_);
  SpawnedProcess process;
  process.pid = spawn_shell(spawner, "exit 3");
  spawner.watch(process);
  spawner.open_gate();
  CHECK(wait(process.pid) == 3);
}

}  // namespace
}  // namespace launcher
