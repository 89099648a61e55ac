// The file behind a SummaryWriter: what is on disk when, bounded memory, errors, order of files.
#include "monitor/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/monitor/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr EventFileOptions kOnlyOnFlush{.flush_interval = std::chrono::hours(1)};

TEST(EventFile, is_valid_from_the_beginning_and_named_as_tensorboard_expects) {
  const testing::TemporaryFolder folder;
  const EventFile file(folder.path() / "a" / "b", kOnlyOnFlush);
  EXPECT_THAT(file.path().filename().string(), StartsWith("events.out.tfevents."));
  EXPECT_EQ(file.path().parent_path(), folder.path() / "a" / "b");
  const auto records = testing::records_of(file.path());
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(testing::field_at(records[0], {3}).bytes, "brain.Event:2");
}

TEST(EventFile, flush_returns_when_everything_is_in_the_file_in_order) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path(), kOnlyOnFlush);
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 100; ++i) file.add("event " + std::to_string(i));
    file.flush();
    const auto records = testing::records_of(file.path());
    ASSERT_EQ(records.size(), 1U + 100U * static_cast<size_t>(round));
    EXPECT_EQ(records.back(), "event 99");
  }
  file.flush();
}

TEST(EventFile, the_interval_writes_without_a_flush) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path(), {.flush_interval = std::chrono::milliseconds(5)});
  file.add("first");
  while (testing::records_of(file.path()).size() < 2) std::this_thread::yield();
  file.add("second");
  while (testing::records_of(file.path()).size() < 3) std::this_thread::yield();
}

TEST(EventFile, much_data_is_written_before_the_interval_and_memory_stays_bounded) {
  const testing::TemporaryFolder folder;
  for (const size_t most : {size_t{1}, size_t{5000}, size_t{8} << 20}) {
    EventFile file(folder.path(), {.flush_interval = std::chrono::hours(1), .max_queue_bytes = most});
    for (int i = 0; i < 200; ++i) file.add(std::string(10'000, 'x'));  // would wait for ever if nobody wrote
    file.close();
    EXPECT_EQ(testing::records_of(file.path()).size(), 201U);
  }
}

TEST(EventFile, events_of_several_threads_all_arrive_whole) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path(), {.flush_interval = std::chrono::milliseconds(1), .max_queue_bytes = 2000});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&file, thread] {
      for (int i = 0; i < 250; ++i) {
        file.add(std::to_string(thread) + ":" + std::to_string(i));
        if (i % 50 == 0) file.flush();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  file.close();
  std::vector<int> next(4, 0);
  auto records = testing::records_of(file.path());
  ASSERT_EQ(records.size(), 1001U);
  for (size_t i = 1; i < records.size(); ++i) {
    auto& expected = next.at(static_cast<size_t>(records[i][0] - '0'));
    ASSERT_EQ(records[i].substr(2), std::to_string(expected++));
  }
}

TEST(EventFile, a_later_file_sorts_behind_earlier_ones_even_within_one_second) {
  const testing::TemporaryFolder folder;
  std::vector<fs::path> made;
  for (int i = 0; i < 5; ++i) made.push_back(EventFile(folder.path()).path());
  EXPECT_EQ(testing::event_files(folder.path()), made);
  // A name from far in the future is no clock that is a bit off.
  testing::write_file(folder.path() / "events.out.tfevents.9999999999.x", "");
  EXPECT_LT(EventFile(folder.path()).path().filename().string(), "events.out.tfevents.9999999999.x");
}

TEST(EventFile, a_killed_process_leaves_everything_up_to_the_last_flush) {
  const testing::TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    EventFile file(folder.path(), kOnlyOnFlush);
    for (int i = 0; i < 1000; ++i) file.add("before " + std::to_string(i));
    file.flush();
    for (int i = 0; i < 1000; ++i) file.add("after " + std::to_string(i));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto files = testing::event_files(folder.path());
  ASSERT_EQ(files.size(), 1U);
  const auto records = testing::records_of(files[0]);
  ASSERT_GE(records.size(), 1001U);
  EXPECT_EQ(records[1000], "before 999");
}

TEST(EventFile, a_folder_that_cannot_be_made_is_named) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path() / "file", "");
  EXPECT_THAT([&] { EventFile(folder.path() / "file" / "run"); },
              ThrowsMessage<std::runtime_error>(HasSubstr((folder.path() / "file" / "run").string())));
}

TEST(EventFile, a_failing_disk_is_reported_to_the_caller_and_never_hangs) {
  const testing::TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The limit on a file's size fails writes as a full disk does.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 5000, .rlim_max = 5000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    EventFile file(folder.path(), {.max_queue_bytes = 2000});
    try {
      for (int i = 0; i < 1000; ++i) file.add(std::string(100, 'x'));
      file.flush();
    } catch (const std::runtime_error& error) {
      const std::string message = error.what();
      ::_exit(message.starts_with(file.path().string() + ": cannot be written: ") ? 0 : 3);
    }
    ::_exit(4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  // What was written before is still readable.
  EXPECT_GT(testing::records_of(testing::event_files(folder.path()).at(0)).size(), 10U);
}

TEST(EventFile, nothing_can_be_added_after_close) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path());
  file.add("one");
  file.close();
  file.close();
  EXPECT_EQ(testing::records_of(file.path()).size(), 2U);
  EXPECT_THAT([&] { file.add("two"); }, ThrowsMessage<std::runtime_error>(HasSubstr("after close()")));
}

}  // namespace
}  // namespace ddp
