#include "base/timeline/trace_file.h"

#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <ddprun/base/progress.h>
#include <ddprun/base/timeline.h>

#include "base/timeline/trace_builder.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace ddp::detail {
namespace {

using nlohmann::json;

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
json events_of(const std::string& path) {
  return json::parse(content_of(path)).at("traceEvents");
}

struct TraceFileTest {
  test::TemporaryFolder folder;
  std::string path = folder.path() / "trace.json";
};

TEST_CASE_METHOD(TraceFileTest, "Trace file: it is valid after every flush") {
  TraceFile file(path, "{}");
  CHECK(events_of(path).empty());
  for (int i = 0; i < 3; ++i) {
    file.add("{\"i\":" + std::to_string(i) + "}");
    if (i == 1) file.set_totals("{\"lost_events\":{\"0\":5}}");
    if (i == 2) file.set_totals("{}");
    file.flush();
    CHECK(events_of(path).size() == static_cast<std::size_t>(i + 1));
  }
  CHECK(file.problem().empty());
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: it says by how much the times of ranks on other hosts may be wrong") {
  {
    TraceFile file(path, "{}");
    TraceBuilder builder(file, 0);
    for (int rank = 0; rank < 4; ++rank) builder.begin_rank(rank, "rank");
    const auto record = [&](int rank) {
      static std::uint64_t lost = 0;
      builder.on_pass_end(rank, ++lost);  // an event says so
    };
    record(0);  // on this host
    builder.set_clock(1, {.ahead = 5'000'000, .error = 800'000});
    record(1);
    builder.set_clock(1, {.ahead = 5'000'000, .error = 80'000});
    record(1);
    builder.set_clock(2, {.ahead = 7'000});  // by the time of day
    record(2);
    builder.set_clock(3, {.ahead = 1, .error = 1'000});  // has no event
    for (int rank = 0; rank < 4; ++rank) builder.end_rank(rank, 1);
  }
  const json totals = json::parse(content_of(path)).at("ddprun");
  CHECK(totals.at("clock_error_us") == json{{"1", 901}, {"2", nullptr}});
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: what cannot be written is refused at the beginning") {
  CHECK_THROWS_WITH(TraceFile(folder.path(), "{}"), Catch::Matchers::ContainsSubstring("directory"));
  CHECK_THROWS_WITH(TraceFile(path + "/x", "{}"), Catch::Matchers::ContainsSubstring("No such file"));
  CHECK_THROWS_WITH(TraceFile("/dev/null", "{}"), Catch::Matchers::ContainsSubstring("regular"));
  TraceFile file(path, "{}");
  CHECK_THROWS_WITH(TraceFile(path, "{}"), Catch::Matchers::ContainsSubstring("another job"));
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: where the disk is full it ends valid, with all that found room") {
  const pid_t child = ::fork();  // the limit is for good
  if (child == 0) {
    TraceFile file(path, "{}");
    const rlimit limit{20'000, 20'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; file.problem().empty() && i < 100'000; ++i) {
      file.add("{\"name\":\"some event of some length\"}");
      if (i % 7 == 0) file.flush();
    }
    ::_exit(file.problem().empty() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(events_of(path).size() > 300);
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: without room nothing is left behind, and nothing is lost") {
  const bool has_old = GENERATE(false, true);
  const std::string old(has_old ? 100 : 0, 'x');
  if (has_old) std::ofstream(path) << old;
  const pid_t child = ::fork();  // the limit is for good
  if (child == 0) {
    const rlimit limit{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      const TraceFile file(path, "{}");
    } catch (const std::runtime_error& error) {
      ::_exit(std::string(error.what()).find("too large") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(std::filesystem::exists(path) == has_old);
  CHECK(content_of(path) == old);
}

TEST_CASE_METHOD(TraceFileTest,
                 "Trace file: one that somebody removes, empties or writes to is told, once there is more or not") {
  const bool has_more = GENERATE(false, true);
  const std::string what = GENERATE("removed", "emptied", "written to");
  TraceFile file(path, "{}");
  file.add("{\"i\":1}");
  file.flush();
  REQUIRE(file.problem().empty());
  if (what == "removed") std::filesystem::remove(path);
  if (what == "emptied") std::filesystem::resize_file(path, 0);
  if (what == "written to") std::ofstream(path, std::ios::app) << "more";
  if (has_more) file.add("{\"i\":2}");
  file.flush();
  CHECK(file.problem() == (what == "removed" ? "it was removed" : "another program has written to it"));
  if (what == "emptied") CHECK(content_of(path).empty());
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: a suspended file may be moved, and resume() opens only the same file") {
  TraceFile file(path, "{}");
  file.add("{\"i\":1}");
  file.suspend();
  CHECK(file.place() == path);
  { const TraceFile other(folder / "other.json", "{}"); }
  SECTION("as it was") {
    CHECK(file.resume());
    file.add("{\"i\":2}");
    file.flush();
    CHECK(events_of(path).size() == 2);
    CHECK_THROWS_WITH(TraceFile(path, "{}"), Catch::Matchers::ContainsSubstring("another job"));
  }
  SECTION("late events come to it") {
    file.add("{\"i\":2}");
    file.flush();
    CHECK(events_of(path).size() == 2);
    { const TraceFile other(path, "{}"); }  // nobody holds it
    file.add("{\"i\":3}");
    file.flush();
    CHECK(file.problem() == "it was replaced or removed");
    CHECK(events_of(path).empty());
  }
  SECTION("moved") {
    const std::string moved = folder / "moved.json";
    std::filesystem::rename(path, moved);
    if (GENERATE(false, true)) std::filesystem::copy_file(moved, path);
    CHECK_FALSE(file.resume());
    CHECK(file.problem().empty());
    CHECK(events_of(moved).size() == 1);
  }
  SECTION("changed") {
    std::ofstream(path, std::ios::app) << "more";
    CHECK_FALSE(file.resume());
  }
  SECTION("renamed before suspend()") {
    CHECK(file.resume());
    const std::string moved = folder / "moved.json";
    std::filesystem::rename(path, moved);
    file.add("{\"i\":2}");
    file.suspend();
    CHECK(file.place() == moved);
    CHECK(events_of(moved).size() == 2);
  }
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: the file to which this process writes is refused") {
  const int descriptor = GENERATE(STDOUT_FILENO, STDERR_FILENO);
  const std::string name = GENERATE(std::string(), std::string("/dev/fd/"));
  const pid_t child = ::fork();
  if (child == 0) {
    std::FILE* output = std::fopen(path.c_str(), "w");
    ::dup2(::fileno(output), descriptor);
    try {
      const TraceFile file(name.empty() ? path : name + std::to_string(descriptor), "{}");
    } catch (const std::runtime_error& error) {
      ::_exit(std::string(error.what()).find("output or error of this process") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE_METHOD(TraceFileTest, "Trace file: one that was cut off anywhere is mended to what was whole") {
  {
    TraceFile file(path, "{\"writer\":\"test\"}");
    for (int i = 0; i < 20; ++i) file.add("{\"name\":\"event " + std::to_string(i) + "\",\"args\":{\"i\":1}}");
  }
  const std::string whole = content_of(path);
  repair_trace_file(path);
  CHECK(content_of(path) == whole);
  const std::size_t first_event = whole.find("event 0\"") + 30;
  for (std::size_t length = first_event; length < whole.size(); ++length) {
    std::ofstream(path, std::ios::trunc) << whole.substr(0, length);
    repair_trace_file(path);
    const json events = events_of(path);
    REQUIRE(!events.empty());
    REQUIRE(events.back().at("name") == "event " + std::to_string(events.size() - 1));
  }
  std::ofstream(path, std::ios::trunc) << "no timeline {\n";
  repair_trace_file(path);
  CHECK(content_of(path) == "no timeline {\n");
}

TEST_CASE_METHOD(TraceFileTest, "Timeline of a program: ranges, phases, steps and values are in its file") {
  {
    Timeline timeline(path);
    CHECK(timeline.file() == path);
    CHECK(timeline::is_recording());
    for (int i = 0; i < 3; ++i) {
      const progress::PhaseScope forward(progress::Phase::kForward);
      const timeline::Range range("attention \"x\"\n");
      progress::value("loss", 0.5);
      progress::step();
    }
    timeline.stop();
    { const timeline::Range range("not recorded"); }
    timeline.start();
    { const timeline::Range range("recorded again"); }
    CHECK_THROWS_WITH(Timeline(path), Catch::Matchers::ContainsSubstring("already"));
  }
  CHECK_FALSE(timeline::is_recording());
  { const timeline::Range range("afterwards"); }
  std::map<std::string, int> names;
  for (const auto& event : events_of(path)) ++names[event.at("name")];
  CHECK(names["forward"] == 3);
  CHECK(names["attention \"x\"\n"] == 3);
  CHECK(names["loss"] == 3);
  CHECK(names["recorded again"] == 1);
  CHECK(names["not recorded"] == 0);
  CHECK(names["afterwards"] == 0);
  CHECK(names["thread_name"] >= 2);
}

TEST_CASE_METHOD(TraceFileTest,
                 "Timeline of a program: only the steps that were asked for, each rank in its own file") {
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  std::filesystem::path file;
  {
    Timeline timeline(path, {.first_step = 1'000'001, .end_step = 1'000'002});
    file = timeline.file();
    CHECK_FALSE(timeline::is_recording());
  }
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  CHECK(file == folder.path() / "trace.rank1.json");
  CHECK(json::parse(content_of(file)).at("otherData").at("rank") == 1);
}

}  // namespace
}  // namespace ddp::detail
