// The file behind a SummaryWriter: what is on disk when, bounded memory, errors, order of files.
#include "monitor/event_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

constexpr EventFileOptions kOnlyOnFlush{.flush_interval = std::chrono::hours(1)};

TEST_CASE("EventFile: is valid from the beginning and named as TensorBoard expects") {
  const test::TemporaryFolder folder;
  const EventFile file(folder.path() / "a" / "b", kOnlyOnFlush);
  CHECK_THAT(file.path().filename().string(), StartsWith("events.out.tfevents."));
  CHECK(file.path().parent_path() == folder.path() / "a" / "b");
  const auto records = test::records_of(file.path());
  REQUIRE(records.size() == 1U);
  CHECK(test::field_at(records[0], {3}).bytes == "brain.Event:2");
}

TEST_CASE("EventFile: flush returns when everything is in the file in order") {
  const test::TemporaryFolder folder;
  EventFile file(folder.path(), kOnlyOnFlush);
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 100; ++i) file.add("event " + std::to_string(i));
    file.flush();
    const auto records = test::records_of(file.path());
    REQUIRE(records.size() == 1U + 100U * static_cast<size_t>(round));
    CHECK(records.back() == "event 99");
  }
  file.flush();
}

TEST_CASE("EventFile: the interval writes without a flush") {
  const test::TemporaryFolder folder;
  EventFile file(folder.path(), {.flush_interval = std::chrono::milliseconds(5)});
  file.add("first");
  while (test::records_of(file.path()).size() < 2) std::this_thread::yield();
  file.add("second");
  while (test::records_of(file.path()).size() < 3) std::this_thread::yield();
}

TEST_CASE("EventFile: much data is written before the interval and memory stays bounded") {
  const test::TemporaryFolder folder;
  for (const size_t most : {size_t{1}, size_t{5000}, size_t{8} << 20}) {
    EventFile file(folder.path(), {.flush_interval = std::chrono::hours(1), .max_queue_bytes = most});
    for (int i = 0; i < 200; ++i) file.add(std::string(10'000, 'x'));  // would wait for ever if nobody wrote
    file.close();
    CHECK(test::records_of(file.path()).size() == 201U);
  }
}

TEST_CASE("EventFile: events of several threads all arrive whole") {
  const test::TemporaryFolder folder;
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
  auto records = test::records_of(file.path());
  REQUIRE(records.size() == 1001U);
  for (size_t i = 1; i < records.size(); ++i) {
    auto& expected = next.at(static_cast<size_t>(records[i][0] - '0'));
    REQUIRE(records[i].substr(2) == std::to_string(expected++));
  }
}

TEST_CASE("EventFile: a later file sorts behind earlier ones even within one second") {
  const test::TemporaryFolder folder;
  std::vector<fs::path> made;
  for (int i = 0; i < 5; ++i) made.push_back(EventFile(folder.path()).path());
  CHECK(test::event_files(folder.path()) == made);
  // A name from far in the future is not a clock that is a bit off.
  test::write_file(folder.path() / "events.out.tfevents.9999999999.x", "");
  CHECK(EventFile(folder.path()).path().filename().string() < "events.out.tfevents.9999999999.x");
}

TEST_CASE("EventFile: a killed process leaves everything up to the last flush") {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    EventFile file(folder.path(), kOnlyOnFlush);
    for (int i = 0; i < 1000; ++i) file.add("before " + std::to_string(i));
    file.flush();
    for (int i = 0; i < 1000; ++i) file.add("after " + std::to_string(i));
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const auto files = test::event_files(folder.path());
  REQUIRE(files.size() == 1U);
  const auto records = test::records_of(files[0]);
  REQUIRE(records.size() >= 1001U);
  CHECK(records[1000] == "before 999");
}

TEST_CASE("EventFile: a folder that cannot be made is named") {
  const test::TemporaryFolder folder;
  test::write_file(folder.path() / "file", "");
  CHECK_THROWS_MATCHES(EventFile(folder.path() / "file" / "run"), std::runtime_error,
                       MessageMatches(ContainsSubstring((folder.path() / "file" / "run").string())));
}

TEST_CASE("EventFile: a failing disk is reported to the caller and never hangs") {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The limit on a file's size fails writes as a full disk does.
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
  REQUIRE(::waitpid(child, &status, 0) == child);
  UNSCOPED_INFO(status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  // What was written before is still readable.
  CHECK(test::records_of(test::event_files(folder.path()).at(0)).size() > 10U);
}

TEST_CASE("EventFile: nothing can be added after close") {
  const test::TemporaryFolder folder;
  EventFile file(folder.path());
  file.add("one");
  file.close();
  file.close();
  CHECK(test::records_of(file.path()).size() == 2U);
  CHECK_THROWS_MATCHES(file.add("two"), std::runtime_error, MessageMatches(ContainsSubstring("after close()")));
}

}  // namespace
}  // namespace ddp
