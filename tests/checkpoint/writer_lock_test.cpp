// One process at a time saves into a directory, whoever dies and however; readers change nothing there.
#include "checkpoint/storage/writer_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/storage/verified_files.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/checkpoint/temporary_folder.h"

namespace ddp::storage {
namespace {

using test::FaultyFileSystem;
using test::message_of;
using test::steps_in;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A child that runs `body` and then stays until it is ended; constructed when the body has returned.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      EXPECT_EQ(::write(ready[1], "x", 1), 1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
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

void save(FileSystem& file_system, const std::filesystem::path& directory, int64_t step, int64_t sequence = 0) {
  StagedFolder staged(file_system, directory, step);
  const auto text = std::to_string(step);
  staged.write("model", [&](ByteSink& sink) { sink.write(text.data(), text.size()); });
  staged.commit({.sequence = sequence});
}

TEST(WriterLock, ASecondProcessIsRefusedAndToldWhoHoldsItUntilThatOneDies) {
  const TemporaryFolder folder;
  FileSystem file_system;
  WriterLock lock(file_system, folder / "run", 0);
  std::unique_ptr<WriterLock> of_child;
  Child child([&] {
    of_child = std::make_unique<WriterLock>(file_system, folder / "run", 0);
    of_child->hold();
  });
  EXPECT_THAT(message_of([&] { lock.hold(); }),
              AllOf(HasSubstr((folder / "run").string()), HasSubstr("process " + std::to_string(child.pid()) + " on "),
                    HasSubstr("rank 0, since 20"), HasSubstr("end that one")));
  child.kill();
  EXPECT_TRUE(lock.hold());
  EXPECT_FALSE(lock.hold()) << "it is held already";
  EXPECT_THAT(test::read_file(folder / "run" / kLockName), HasSubstr("process " + std::to_string(::getpid()) + " on "));
}

TEST(WriterLock, ASecondOneInTheSameProcessIsRefusedUntilTheFirstIsGone) {
  const TemporaryFolder folder;
  FileSystem file_system;
  auto first = std::make_unique<WriterLock>(file_system, folder / "run", 0);
  WriterLock second(file_system, folder / "run", 0);
  first->hold();
  EXPECT_THAT(message_of([&] { second.hold(); }), HasSubstr("another CheckpointManager of this very process"));
  EXPECT_FALSE(first->hold());
  first.reset();
  EXPECT_TRUE(second.hold());
}

TEST(WriterLock, AForkedChildNeitherSavesNorGivesTheLockAwayNorKeepsIt) {
  const TemporaryFolder folder;
  FileSystem file_system;
  auto lock = std::make_unique<WriterLock>(file_system, folder / "run", 0);
  lock->hold();
  const auto status = status_of([&] {
    const auto message = message_of([&] { lock->hold(); });
    lock.reset();
    return message.find("from which this one was forked") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  WriterLock other(file_system, folder / "run", 0);
  EXPECT_THROW(other.hold(), DirectoryIsTaken) << "the child's end must not end the parent's lock";
  Child child([] {});
  lock.reset();
  EXPECT_TRUE(other.hold()) << "a child that lives on must not keep what its parent has given back";
}

TEST(WriterLock, ADirectoryThatWasRemovedIsTakenAnew) {
  const TemporaryFolder folder;
  FileSystem file_system;
  WriterLock lock(file_system, folder / "run", 0);
  lock.hold();
  std::filesystem::remove_all(folder / "run");
  EXPECT_TRUE(lock.hold());
  WriterLock other(file_system, folder / "run", 0);
  EXPECT_THROW(other.hold(), DirectoryIsTaken);
}

TEST(WriterLock, WithoutLocksOneGoesOnAndSaysSo) {
  const TemporaryFolder folder;
  FaultyFileSystem file_system;
  file_system.can_lock(false);
  WriterLock lock(file_system, folder / "run", 0);
  EXPECT_TRUE(lock.hold());
  EXPECT_FALSE(lock.excludes_others());
  EXPECT_FALSE(lock.hold());
}

TEST(WriterLock, AFullDiskOrAHostileEntryDoNotMatter) {
  const TemporaryFolder folder;
  FaultyFileSystem full([](int, const std::string& operation) {
    if (operation.starts_with("sign")) throw std::system_error(ENOSPC, std::generic_category(), operation);
  });
  WriterLock lock(full, folder / "run", 0);
  EXPECT_TRUE(lock.hold());
  FileSystem file_system;
  WriterLock other(file_system, folder / "run", 0);
  EXPECT_THAT(message_of([&] { other.hold(); }), HasSubstr("saved into by another process"));
  test::write_file(folder / "run" / kLockName, "\x1b[2J" + std::string(100'000, 'x'));
  const auto message = message_of([&] { other.hold(); });
  EXPECT_THAT(message, HasSubstr("by ?[2Jxxx"));
  EXPECT_LT(message.size(), 1000);
}

TEST(WriterLock, ALinkInPlaceOfTheLockIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "run");
  test::write_file(folder / "precious", "text");
  std::filesystem::create_symlink(folder / "precious", folder / "run" / kLockName);
  FileSystem file_system;
  WriterLock lock(file_system, folder / "run", 0);
  EXPECT_THROW(lock.hold(), std::system_error);
  EXPECT_EQ(test::read_file(folder / "precious"), "text");
}

TEST(Reading, ChangesNothing) {
  const TemporaryFolder folder;
  FaultyFileSystem faulty;
  faulty.can_exchange(false);
  save(faulty, folder / "run", 1, 1);
  save(faulty, folder / "run", 2, 2);
  std::filesystem::create_directory(folder / "run" / "step-00000003.tmp-1");
  FaultyFileSystem read_only([](int, const std::string& operation) {
    for (const char* harmless : {"open ", "read "}) {
      if (operation.starts_with(harmless) && !operation.starts_with("open the lock")) return;
    }
    throw std::system_error(EROFS, std::generic_category(), operation);
  });
  EXPECT_THAT(steps_in(read_only, folder / "run"), ElementsAre(2, 1));
  EXPECT_EQ(open_checkpoint(read_only, folder / "run" / "step-00000002").files.at("model").view, "2");
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "step-00000003.tmp-1"));
}

TEST(Reading, FindsACheckpointWhoseReplacementWasInterrupted) {
  const TemporaryFolder folder;
  FileSystem file_system;
  save(file_system, folder / "run", 7, 1);
  std::filesystem::rename(folder / "run/step-00000007", folder / "run/step-00000007.old-1");
  EXPECT_THAT(steps_in(file_system, folder / "run"), ElementsAre(7));
  const auto found = find_checkpoint(file_system, folder / "run", 7);
  EXPECT_EQ(open_checkpoint(file_system, found).files.at("model").view, "7");
  EXPECT_EQ(last_sequence(file_system, folder / "run"), 1);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/step-00000007.old-1"));
  save(file_system, folder / "run", 7, 2);
  EXPECT_THAT(steps_in(file_system, folder / "run"), ElementsAre(7)) << "the one that took the place alone counts";
}

TEST(Reading, ACheckpointThatIsRemovedMeanwhileIsNoDamage) {
  const TemporaryFolder folder;
  FileSystem file_system;
  save(file_system, folder / "run", 1, 1);
  save(file_system, folder / "run", 2, 2);
  // Step 2 goes when its manifest is about to be opened.
  FaultyFileSystem racing([&](int, const std::string& operation) {
    if (operation == "open MANIFEST.json" && std::filesystem::exists(folder / "run/step-00000002")) {
      std::filesystem::rename(folder / "run/step-00000002", folder / "run/step-00000002.tmp-1");
    }
  });
  EXPECT_THAT(steps_in(racing, folder / "run").back(), 1);
  EXPECT_THAT(steps_in(file_system, folder / "run"), ElementsAre(1));
}

TEST(Reading, ACheckpointThatIsReplacedMeanwhileIsReadAnew) {
  const TemporaryFolder folder;
  FileSystem file_system;
  save(file_system, folder / "run", 1, 1);
  int times = 0;
  FaultyFileSystem racing([&](int, const std::string& operation) {
    if (operation == "open model" && times++ == 0) save(file_system, folder / "run", 1, 2);
  });
  const auto opened = open_checkpoint(racing, folder / "run" / "step-00000001");
  EXPECT_EQ(opened.manifest.sequence, times == 1 ? 1 : 2);
  EXPECT_EQ(opened.files.at("model").view, "1");
}

TEST(Reading, WhatIsOpenStaysReadableWhenTheCheckpointIsRemoved) {
  const TemporaryFolder folder;
  FileSystem file_system;
  save(file_system, folder / "run", 1, 1);
  bool is_removed = false;
  FaultyFileSystem racing([&](int, const std::string& operation) {
    if (operation == "read model" && !std::exchange(is_removed, true)) {
      remove_checkpoint(file_system, folder / "run", 1);
    }
  });
  EXPECT_EQ(open_checkpoint(racing, folder / "run" / "step-00000001").files.at("model").view, "1");
  EXPECT_TRUE(is_removed);
}

TEST(Committing, WhatIsNotWhatWasWrittenIsNoSave) {
  for (const bool can_exchange : {true, false}) {
    for (const bool replaces : {true, false}) {
      const TemporaryFolder folder;
      FileSystem file_system;
      if (replaces) save(file_system, folder / "run", 2, 1);
      // Somebody cleans up: the file goes before the folder gets its name.
      FaultyFileSystem disturbed([&](int, const std::string& operation) {
        if (!operation.starts_with("sync folder step-00000002.tmp-")) return;
        for (const auto& name : file_system.entries(folder / "run")) {
          if (name.find(".tmp-") != std::string::npos) std::filesystem::remove(folder / "run" / name / "model");
        }
      });
      disturbed.can_exchange(can_exchange);
      EXPECT_THAT(message_of([&] { save(disturbed, folder / "run", 2, 2); }),
                  AllOf(HasSubstr("something else changes this directory"), HasSubstr("model")));
      const auto steps = steps_in(file_system, folder / "run");
      if (replaces) {
        EXPECT_THAT(steps, ElementsAre(2)) << "the earlier one is back";
        EXPECT_EQ(list_checkpoints(file_system, folder / "run").at(0).manifest.sequence, 1);
      } else {
        EXPECT_THAT(steps, IsEmpty()) << "nothing torn stays under a final name";
      }
    }
  }
}

TEST(Order, TheNewestIsTheOneThatWasSavedLast) {
  const TemporaryFolder folder;
  FileSystem file_system;
  save(file_system, folder / "run", 40);  // by an older version, without numbers
  save(file_system, folder / "run", 50);
  int64_t sequence = last_sequence(file_system, folder / "run");
  EXPECT_EQ(sequence, 0);
  for (const int64_t step : {10, 30, 15}) save(file_system, folder / "run", step, ++sequence);
  EXPECT_THAT(steps_in(file_system, folder / "run"), ElementsAre(15, 30, 10, 50, 40));
  EXPECT_EQ(last_sequence(file_system, folder / "run"), 3);
}

}  // namespace
}  // namespace ddp::storage
