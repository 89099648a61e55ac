#include "launcher/local/report/event_log.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using nlohmann::json;

std::vector<json> events_in(const std::string& text) {
  std::vector<json> events;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end != std::string::npos);  // whole lines
    events.push_back(json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return events;
}

class EventLogTest {
 protected:
  EventLogTest() { ::signal(SIGPIPE, SIG_IGN); }  // as ddprun blocks it
  std::string path() const { return folder_ / "events"; }
  std::vector<json> events() const { return events_in(ddp::test::read_file(path())); }

  ddp::test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(EventLogTest, "EventLog: each event is a line with its name, times and host") {
  EventLog log(path());
  log.rank_started({.rank = 5, .local_rank = 1}, 4711, 2);
  log.restarting(3);
  log.job_ended(143);
  const std::vector<json> all = events();
  REQUIRE(all.size() == 3);
  CHECK(all[0]["event"] == "start");
  CHECK(all[0]["rank"] == 5);
  CHECK(all[0]["local_rank"] == 1);
  CHECK(all[0]["pid"] == 4711);
  CHECK(all[0]["attempt"] == 2);
  CHECK(all[1]["event"] == "restart");
  CHECK(all[1]["attempt"] == 3);
  CHECK(all[2]["event"] == "end");
  CHECK(all[2]["exit_status"] == 143);
  double before = 0;
  for (const json& event : all) {
    CHECK(event["host"] == host_name());
    CHECK(event["time"].get<double>() > 1.6e9);
    CHECK(event["elapsed"].get<double>() >= before);
    before = event["elapsed"].get<double>();
  }
  CHECK(log.problem() == "");
}

TEST_CASE_METHOD(EventLogTest, "EventLog: how a rank ended is an exit code or a signal, never both") {
  EventLog log(path());
  log.rank_ended({.rank = 1, .pid = 7, .exit_code = 3, .stop_requested = true}, 0);
  log.rank_ended({.rank = 2, .pid = 8, .signal = SIGSEGV, .core_dumped = true}, 1);
  log.rank_ended({.rank = 3, .pid = 9, .signal = 35}, 1);
  const std::vector<json> all = events();
  REQUIRE(all.size() == 3);
  CHECK(all[0]["exit_code"] == 3);
  CHECK(all[0]["signal"].is_null());
  CHECK(all[0]["told_to_stop"] == true);
  CHECK(all[0]["core_dumped"] == false);
  CHECK(all[1]["exit_code"].is_null());
  CHECK(all[1]["signal"] == "SIGSEGV");
  CHECK(all[1]["core_dumped"] == true);
  CHECK(all[2]["signal"] == "signal 35");
}

TEST_CASE_METHOD(EventLogTest, "EventLog: the first failure is told with its message, whatever bytes that has") {
  EventLog log(path());
  JobEnd end;
  end.ranks = {{.rank = 0, .exit_code = 1, .stop_requested = true}, {.rank = 1, .exit_code = 2}};
  end.ranks[1].time = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
  log.attempt_failed(end, 0);
  end.ranks[1].error = ErrorRecord{.message = std::string("a\n\"b\"\\ \xff\xfe\0 \xe4\xb8\xad", 14)};
  log.attempt_failed(end, 0);
  end.ranks[1].error->message.assign(1 << 20, '\x80');
  log.attempt_failed(end, 0);
  const std::vector<json> all = events();
  REQUIRE(all.size() == 3);
  CHECK(all[0]["event"] == "failure");
  CHECK(all[0]["rank"] == 1);
  CHECK(all[0]["message"].is_null());
  CHECK(all[0]["ended_at"] == 1'700'000'000.0);
  CHECK_THAT(all[1]["message"].get<std::string>(), StartsWith("a\n\"b\"\\ \xef\xbf\xbd\xef\xbf\xbd"));
  CHECK(all[2]["message"].get<std::string>().size() == 3U << 20);
  CHECK(log.problem() == "");
}

TEST_CASE_METHOD(EventLogTest,
                 "EventLog: another node's failure names the node, and without a failure there is no event") {
  EventLog log(path());
  JobEnd end;
  end.ranks = {{.rank = 0}, {.rank = 1, .signal = SIGTERM, .stop_requested = true}};
  log.attempt_failed(end, 0);
  CHECK(events().empty());
  end.elsewhere = FailureNotice{.node = 3, .exit_status = 44, .text = "rank 9 failed"};
  log.attempt_failed(end, 1);
  const std::vector<json> all = events();
  REQUIRE(all.size() == 1);
  CHECK(all[0]["node"] == 3);
  CHECK(all[0]["exit_status"] == 44);
  CHECK(all[0]["message"] == "rank 9 failed");
  CHECK_FALSE(all[0].contains("rank"));
}

TEST_CASE_METHOD(EventLogTest, "EventLog: adds to what is there, also beside another one") {
  ddp::test::write_file(path(), "{\"event\": \"before\"}\n");
  EventLog first(path());
  EventLog second(path());
  for (int i = 0; i < 20; ++i) (i % 2 == 0 ? first : second).restarting(i);
  const std::vector<json> all = events();
  REQUIRE(all.size() == 21);
  for (int i = 0; i < 20; ++i) CHECK(all[static_cast<std::size_t>(i) + 1]["attempt"] == i);
}

TEST_CASE_METHOD(EventLogTest, "EventLog: without a name nothing is written") {
  EventLog log("");
  log.restarting(1);
  log.job_ended(0);
  log.rank_ended({}, 0);
  log.attempt_failed({}, 0);
  CHECK(log.problem() == "");
}

TEST_CASE_METHOD(EventLogTest, "EventLog: a file that cannot be opened is refused with the option and why") {
  CHECK_THROWS_WITH(EventLog(folder_ / "missing/events"),
                    "--events " + (folder_ / "missing/events").string() + ": No such file or directory");
  CHECK_THROWS_WITH(EventLog(folder_.path().string()), ContainsSubstring("Is a directory"));
  REQUIRE(::mkfifo(path().c_str(), 0600) == 0);
  CHECK_THROWS_WITH(EventLog(path()), "--events " + path() + ": no process reads from this pipe");
}

TEST_CASE_METHOD(EventLogTest, "EventLog: a disk that is full is said, and no half of a line is followed by others") {
  EventLog log("/dev/full");
  log.restarting(1);
  CHECK(log.problem() == "--events /dev/full: No space left on device");
  log.job_ended(0);
  CHECK(log.problem() == "--events /dev/full: No space left on device");
}

TEST_CASE_METHOD(EventLogTest,
                 "EventLog: a reader that sleeps does not stop the job, and what it has is whole up to the last line") {
  REQUIRE(::mkfifo(path().c_str(), 0600) == 0);
  UniqueFd reader(::open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EventLog log(path());
  JobEnd end;
  end.ranks = {{.rank = 1, .exit_code = 2, .error = ErrorRecord{.message = std::string(30'000, 'x')}}};
  for (int i = 0; i < 10; ++i) log.attempt_failed(end, i);
  CHECK_THAT(log.problem(), StartsWith("--events " + path() + ": "));
  std::string text(1 << 20, '\0');
  const ssize_t count = ::read(reader.get(), text.data(), text.size());
  REQUIRE(count > 0);
  text.resize(text.substr(0, static_cast<std::size_t>(count)).rfind('\n') + 1);
  CHECK(events_in(text).size() == 2);
  reader.reset();
  EventLog* gone = &log;
  gone->job_ended(0);  // nobody is there any more
}

}  // namespace
}  // namespace launcher
