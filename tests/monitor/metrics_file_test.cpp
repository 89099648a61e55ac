#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include <ddprun/monitor/metrics_file.h>

#include "base/job.h"
#include "monitor/csv.h"
#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;
using test::ElementsAre;

class MetricsFiles {
 protected:
  fs::path path(const char* name) const { return folder_.path() / "run" / name; }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(MetricsFiles,
                 "MetricsFile: CSV has the first row's names as header and empty cells for what is missing") {
  MetricsFile file(path("a.csv"));
  file.write({{"epoch", int64_t{0}}, {"loss", 0.5}, {"note, \"best\"", std::string("a\nb")}, {"saved", true}});
  file.write({{"loss", 0.1}, {"epoch", int64_t{1}}});
  CHECK(test::read_file(path("a.csv")) == "epoch,loss,\"note, \"\"best\"\"\",saved\n0,0.5,\"a\nb\",true\n1,0.1,,\n");
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: JSON lines can be parsed and numbers keep their bits") {
  const double third = 1.0 / 3;
  MetricsFile file(path("a.jsonl"));
  file.write({{"x", third}, {"big", std::numeric_limits<int64_t>::min()}, {"text", std::string("\"\\\n\x01 é \xFF")}});
  file.write({{"other", std::nan("")}, {"ok", false}});
  std::istringstream lines(test::read_file(path("a.jsonl")));
  std::string line;
  std::getline(lines, line);
  const json first = json::parse(line);
  CHECK(first.at("x").get<double>() == third);
  CHECK(first.at("big").get<int64_t>() == std::numeric_limits<int64_t>::min());
  CHECK(first.at("text") == "\"\\\n\x01 é \xEF\xBF\xBD");
  std::getline(lines, line);
  CHECK(json::parse(line) == json{{"other", nullptr}, {"ok", false}});
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: a resumed run goes on under the same header") {
  MetricsFile(path("a.csv")).write({{"a", int64_t{1}}, {"b, c", int64_t{2}}});
  MetricsFile(path("a.csv"), {.append = true}).write({{"b, c", int64_t{3}}});
  CHECK(test::read_file(path("a.csv")) == "a,\"b, c\"\n1,2\n,3\n");
  MetricsFile(path("a.csv")).write({{"new", int64_t{1}}});
  CHECK(test::read_file(path("a.csv")) == "new\n1\n");
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: a row truncated by a crash does not swallow the next") {
  MetricsFile(path("a.jsonl")).write({{"a", 1.0}});
  test::write_file(path("a.jsonl"), "{\"a\": 1}\n{\"a\": ");
  MetricsFile(path("a.jsonl"), {.append = true}).write({{"a", 2.0}});
  CHECK(test::read_file(path("a.jsonl")) == "{\"a\": 1}\n{\"a\": \n{\"a\": 2}\n");
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: a row that does not fit is refused and nothing is written") {
  MetricsFile file(path("a.csv"));
  file.write({{"a", 1.0}});
  const std::string before = test::read_file(path("a.csv"));
  CHECK_THROWS_MATCHES(file.write({{"b", 1.0}}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("no column \"b\"")));
  CHECK_THROWS_MATCHES(file.write({{"a", 1.0}, {"a", 2.0}}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("twice")));
  CHECK_THROWS_AS(file.write({}), std::invalid_argument);
  CHECK(test::read_file(path("a.csv")) == before);
  file.write({{"a", 2.0}});
}

struct MetricsGroup {
  int rank() const { return 1; }
  int size() const { return 2; }
};

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: in a job of several ranks it must know which this is") {
  MetricsFile(path("a.csv"), {.rank = 0}).write({{"a", 1.0}});
  const ThreadJob job({.rank = 1, .size = 2});
  CHECK_THROWS_MATCHES(MetricsFile(path("a.csv")), std::invalid_argument,
                       MessageMatches(ContainsSubstring("erase each other's rows. Give it the group")));
  MetricsFile(path("a.csv"), MetricsGroup()).write({{"a", 2.0}});
  INFO("neither has touched rank 0's rows");
  CHECK(test::read_file(path("a.csv")) == "a\n1\n");
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: other ranks touch nothing and a wrong extension is refused") {
  MetricsFile(path("a.csv"), {.rank = 1}).write({{"a", 1.0}});
  CHECK_FALSE(fs::exists(path("a.csv")));
  CHECK_THROWS_MATCHES(MetricsFile(path("a.txt")), std::invalid_argument,
                       MessageMatches(ContainsSubstring("a.txt: expected")));
  CHECK_THROWS_AS(MetricsFile("/dev/null/a.csv"), std::runtime_error);
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: two at once on one file are refused, and the first one's rows stay") {
  const fs::path rows = path("rows.csv");
  {
    MetricsFile first(rows);
    first.write({{"epoch", int64_t{0}}});
    for (const bool append : {false, true}) {
      CHECK_THROWS_WITH(MetricsFile(rows, {.append = append}), ContainsSubstring("is being written already"));
    }
    first.write({{"epoch", int64_t{1}}});
  }
  MetricsFile(rows, {.append = true}).write({{"epoch", int64_t{2}}});
  CHECK(test::read_file(rows) == "epoch\n0\n1\n2\n");
}

TEST_CASE_METHOD(MetricsFiles,
                 "MetricsFile: a run that goes on removes what a killed one has left behind its checkpoint") {
  for (const char* name : {"rows.csv", "rows.jsonl"}) {
    const auto write = [](MetricsFile& file, int64_t first, int64_t last) {
      for (int64_t step = first; step <= last; ++step) {
        file.write({{"note", "a\n\"step\": 9, b"}, {"step", step}, {"loss", 0.5 * static_cast<double>(step)}});
      }
    };
    {
      MetricsFile undisturbed(path("undisturbed").replace_extension(fs::path(name).extension()));
      write(undisturbed, 1, 8);
      MetricsFile killed(path(name));
      write(killed, 1, 6);
    }
    MetricsFile file(path(name), {.append = true});
    file.drop_from("epoch", 0);  // it has no such column
    file.drop_from("step", 7);
    file.drop_from("step", 5);
    write(file, 5, 8);
    CHECK(test::read_file(path(name)) ==
          test::read_file(path("undisturbed").replace_extension(fs::path(name).extension())));
  }
  MetricsFile empty(path("empty.csv"));
  empty.drop_from("step", 0);
  MetricsFile none("");
  none.drop_from("step", 0);
}

TEST_CASE("Csv: the first row of any file can be read") {
  CHECK_THAT(csv_first_row("a,\"b \"\"x\"\"\",\r\n1,2,3"), ElementsAre("a", "b \"x\"", ""));
  CHECK_THAT(csv_first_row(""), ElementsAre(""));
  CHECK_THAT(csv_first_row("\"never closed, \n"), ElementsAre("never closed, \n"));
}

// While it lives a file can have so many bytes, as on a disk that is full then.
class Room {
 public:
  explicit Room(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~Room() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: a row for which there is no room leaves none of itself") {
  const MetricRow row{{"epoch", int64_t{1}}, {"note", std::string("twelve bytes")}};
  for (const char* name : {"a.csv", "a.jsonl"}) {
    INFO(name);
    MetricsFile file(path(name));
    for (int round = 0; round < 2; ++round) {  // the first row comes with the header
      const std::string before = test::read_file(path(name));
      {
        const Room room(before.size() + 10);
        CHECK_THROWS_MATCHES(file.write(row), std::runtime_error,
                             MessageMatches(ContainsSubstring("cannot be written")));
      }
      CHECK(test::read_file(path(name)) == before);
      file.write(row);
    }
  }
  CHECK(test::read_file(path("a.csv")) == "epoch,note\n1,twelve bytes\n1,twelve bytes\n");
  const std::string line = "{\"epoch\": 1, \"note\": \"twelve bytes\"}\n";
  CHECK(test::read_file(path("a.jsonl")) == line + line);
}

TEST_CASE_METHOD(MetricsFiles, "MetricsFile: a folder that cannot be made is named") {
  { MetricsFile file(path("a.csv")); }
  CHECK_THROWS_MATCHES(MetricsFile(path("a.csv") / "in/b.csv"), std::runtime_error,
                       MessageMatches(ContainsSubstring("a.csv/in: cannot be created: ")));
}

}  // namespace
}  // namespace ddp
