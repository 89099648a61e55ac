// One process at a time saves into a directory, whoever dies and however; readers change nothing there.
#include "checkpoint/storage/writer_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/storage/verified_files.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::ElementsAre;
using test::error_of;
using test::FaultyFileSystem;
using test::steps_in;
using test::TemporaryFolder;

// A child that runs `body` and then stays until it is ended; constructed when the body has returned.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ready[2];
    CHECK(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      CHECK(::write(ready[1], "x", 1) == 1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    CHECK(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

// The exit status of a child that returns what `body` does.
int status_of(const std::function<int()>& body) {
  const auto child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void save_locked(FileSystem& file_system, const std::filesystem::path& directory, int64_t step, int64_t sequence = 0) {
  StagedFolder staged(file_system, directory, step);
  const auto text = std::to_string(step);
  staged.write("model", [&](ByteSink& sink) { sink.write(text.data(), text.size()); });
  staged.commit({.sequence = sequence});
}

TEST_CASE("WriterLock: a second process is refused and told who holds it until that one dies") {
  const TemporaryFolder folder;
  FileSystem file_system;
  WriterLock lock(file_system, folder / "run", 0);
  std::unique_ptr<WriterLock> of_child;
  Child child([&] {
    of_child = std::make_unique<WriterLock>(file_system, folder / "run", 0);
    of_child->hold();
  });
  CHECK_THROWS_WITH(lock.hold(), ContainsSubstring((folder / "run").string()) &&
                                     ContainsSubstring("process " + std::to_string(child.pid()) + " on ") &&
                                     ContainsSubstring("rank 0, since 20") && ContainsSubstring("end that one"));
  child.kill();
  CHECK(lock.hold());
  UNSCOPED_INFO("it is held already");
  CHECK_FALSE(lock.hold());
  CHECK_THAT(test::read_file(folder / "run" / kLockName),
             ContainsSubstring("process " + std::to_string(::getpid()) + " on "));
}

TEST_CASE("WriterLock: a second one in the same process is refused until the first is gone") {
  const TemporaryFolder folder;
  FileSystem file_system;
  auto first = std::make_unique<WriterLock>(file_system, folder / "run", 0);
  WriterLock second(file_system, folder / "run", 0);
  first->hold();
  CHECK_THROWS_WITH(second.hold(), ContainsSubstring("another CheckpointManager of this process"));
  CHECK_FALSE(first->hold());
  first.reset();
  CHECK(second.hold());
}

TEST_CASE("WriterLock: a forked child neither saves nor gives the lock away nor keeps it") {
  const TemporaryFolder folder;
  FileSystem file_system;
  auto lock = std::make_unique<WriterLock>(file_system, folder / "run", 0);
  lock->hold();
  const auto status = status_of([&] {
    const auto message = error_of([&] { lock->hold(); });
    lock.reset();
    return message.find("from which this process was forked") != std::string::npos ? 0 : 1;
  });
  CHECK(status == 0);
  WriterLock other(file_system, folder / "run", 0);
  UNSCOPED_INFO("the child's end must not end the parent's lock");
  CHECK_THROWS_AS(other.hold(), DirectoryInUse);
  Child child([] {});
  lock.reset();
  INFO("a child that lives on must not keep what its parent has given back");
  CHECK(other.hold());
}

TEST_CASE("WriterLock: a directory that was removed is taken anew") {
  const TemporaryFolder folder;
  FileSystem file_system;
  WriterLock lock(file_system, folder / "run", 0);
  lock.hold();
  std::filesystem::remove_all(folder / "run");
  CHECK(lock.hold());
  WriterLock other(file_system, folder / "run", 0);
  CHECK_THROWS_AS(other.hold(), DirectoryInUse);
}

TEST_CASE("WriterLock: without locks one goes on and says so") {
  const TemporaryFolder folder;
  FaultyFileSystem file_system;
  file_system.can_lock(false);
  WriterLock lock(file_system, folder / "run", 0);
  CHECK(lock.hold());
  CHECK_FALSE(lock.excludes_others());
  CHECK_FALSE(lock.hold());
}

TEST_CASE("WriterLock: a full disk or a hostile entry do not matter") {
  const TemporaryFolder folder;
  FaultyFileSystem full([](int, const std::string& operation) {
    if (operation.starts_with("sign")) throw std::system_error(ENOSPC, std::generic_category(), operation);
  });
  WriterLock lock(full, folder / "run", 0);
  CHECK(lock.hold());
  FileSystem file_system;
  WriterLock other(file_system, folder / "run", 0);
  CHECK_THROWS_WITH(other.hold(), ContainsSubstring("in use for saving by another process"));
  test::write_file(folder / "run" / kLockName, "\x1b[2J" + std::string(100'000, 'x'));
  const auto message = error_of([&] { other.hold(); });
  CHECK_THAT(message, ContainsSubstring("by ?[2Jxxx"));
  CHECK(message.size() < 1000);
}

TEST_CASE("WriterLock: a link in place of the lock is refused") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "run");
  test::write_file(folder / "precious", "text");
  std::filesystem::create_symlink(folder / "precious", folder / "run" / kLockName);
  FileSystem file_system;
  WriterLock lock(file_system, folder / "run", 0);
  CHECK_THROWS_AS(lock.hold(), std::system_error);
  CHECK(test::read_file(folder / "precious") == "text");
}

TEST_CASE("Reading: changes nothing") {
  const TemporaryFolder folder;
  FaultyFileSystem faulty;
  faulty.can_exchange(false);
  save_locked(faulty, folder / "run", 1, 1);
  save_locked(faulty, folder / "run", 2, 2);
  std::filesystem::create_directory(folder / "run" / "step-00000003.tmp-1");
  FaultyFileSystem read_only([](int, const std::string& operation) {
    for (const char* harmless : {"open ", "read "}) {
      if (operation.starts_with(harmless) && !operation.starts_with("open the lock")) return;
    }
    throw std::system_error(EROFS, std::generic_category(), operation);
  });
  CHECK_THAT(steps_in(read_only, folder / "run"), ElementsAre(2, 1));
  CHECK(open_checkpoint(read_only, folder / "run" / "step-00000002").files.at("model").view == "2");
  CHECK(std::filesystem::exists(folder / "run" / "step-00000003.tmp-1"));
}

TEST_CASE("Reading: finds a checkpoint whose replacement was interrupted") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_locked(file_system, folder / "run", 7, 1);
  std::filesystem::rename(folder / "run/step-00000007", folder / "run/step-00000007.old-1");
  CHECK_THAT(steps_in(file_system, folder / "run"), ElementsAre(7));
  const auto found = find_checkpoint(file_system, folder / "run", 7);
  CHECK(open_checkpoint(file_system, found).files.at("model").view == "7");
  CHECK(last_sequence(file_system, folder / "run") == 1);
  CHECK(std::filesystem::exists(folder / "run/step-00000007.old-1"));
  save_locked(file_system, folder / "run", 7, 2);
  INFO("the one that took the place alone counts");
  CHECK_THAT(steps_in(file_system, folder / "run"), ElementsAre(7));
}

TEST_CASE("Reading: a checkpoint that is removed meanwhile is not a damaged one") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_locked(file_system, folder / "run", 1, 1);
  save_locked(file_system, folder / "run", 2, 2);
  // Step 2 goes when its manifest is about to be opened.
  FaultyFileSystem racing([&](int, const std::string& operation) {
    if (operation == "open MANIFEST.json" && std::filesystem::exists(folder / "run/step-00000002")) {
      std::filesystem::rename(folder / "run/step-00000002", folder / "run/step-00000002.tmp-1");
    }
  });
  CHECK(steps_in(racing, folder / "run").back() == 1);
  CHECK_THAT(steps_in(file_system, folder / "run"), ElementsAre(1));
}

TEST_CASE("Reading: a checkpoint that is replaced meanwhile is read anew") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_locked(file_system, folder / "run", 1, 1);
  int times = 0;
  FaultyFileSystem racing([&](int, const std::string& operation) {
    if (operation == "open model" && times++ == 0) save_locked(file_system, folder / "run", 1, 2);
  });
  const auto opened = open_checkpoint(racing, folder / "run" / "step-00000001");
  CHECK(opened.manifest.sequence == (times == 1 ? 1 : 2));
  CHECK(opened.files.at("model").view == "1");
}

TEST_CASE("Reading: what is open stays readable when the checkpoint is removed") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_locked(file_system, folder / "run", 1, 1);
  bool is_removed = false;
  FaultyFileSystem racing([&](int, const std::string& operation) {
    if (operation == "read model" && !std::exchange(is_removed, true)) {
      remove_checkpoint(file_system, folder / "run", 1);
    }
  });
  CHECK(open_checkpoint(racing, folder / "run" / "step-00000001").files.at("model").view == "1");
  CHECK(is_removed);
}

TEST_CASE("Committing: what is not what was written is not a save") {
  for (const bool can_exchange : {true, false}) {
    for (const bool replaces : {true, false}) {
      const TemporaryFolder folder;
      FileSystem file_system;
      if (replaces) save_locked(file_system, folder / "run", 2, 1);
      // Somebody cleans up: the file goes before the folder gets its name.
      FaultyFileSystem disturbed([&](int, const std::string& operation) {
        if (!operation.starts_with("sync folder step-00000002.tmp-")) return;
        for (const auto& name : file_system.entries(folder / "run")) {
          if (name.find(".tmp-") != std::string::npos) std::filesystem::remove(folder / "run" / name / "model");
        }
      });
      disturbed.can_exchange(can_exchange);
      CHECK_THROWS_WITH(save_locked(disturbed, folder / "run", 2, 2),
                        ContainsSubstring("another program changes this directory") && ContainsSubstring("model"));
      const auto steps = steps_in(file_system, folder / "run");
      if (replaces) {
        UNSCOPED_INFO("the earlier one is back");
        CHECK_THAT(steps, ElementsAre(2));
        CHECK(list_checkpoints(file_system, folder / "run").at(0).manifest.sequence == 1);
      } else {
        INFO("nothing torn stays under a final name");
        CHECK_THAT(steps, IsEmpty());
      }
    }
  }
}

TEST_CASE("Order: the newest is the one that was saved last") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_locked(file_system, folder / "run", 40);  // by an older version, without numbers
  save_locked(file_system, folder / "run", 50);
  int64_t sequence = last_sequence(file_system, folder / "run");
  CHECK(sequence == 0);
  for (const int64_t step : {10, 30, 15}) save_locked(file_system, folder / "run", step, ++sequence);
  CHECK_THAT(steps_in(file_system, folder / "run"), ElementsAre(15, 30, 10, 50, 40));
  CHECK(last_sequence(file_system, folder / "run") == 3);
}

}  // namespace
}  // namespace ddp::storage
