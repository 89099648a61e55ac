#include "monitor/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "monitor/csv.h"
#include "ranks/job.h"
#include "tests/monitor/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class MetricsFileTest : public ::testing::Test {
 protected:
  fs::path path(const char* name) const { return folder_.path() / "run" / name; }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(MetricsFileTest, csv_has_the_first_rows_names_as_header_and_empty_cells_for_what_is_missing) {
  MetricsFile file(path("a.csv"));
  file.write({{"epoch", int64_t{0}}, {"loss", 0.5}, {"note, \"best\"", std::string("a\nb")}, {"saved", true}});
  file.write({{"loss", 0.1}, {"epoch", int64_t{1}}});
  EXPECT_EQ(testing::read_file(path("a.csv")),
            "epoch,loss,\"note, \"\"best\"\"\",saved\n0,0.5,\"a\nb\",true\n1,0.1,,\n");
}

TEST_F(MetricsFileTest, json_lines_can_be_parsed_and_numbers_keep_their_bits) {
  const double third = 1.0 / 3;
  MetricsFile file(path("a.jsonl"));
  file.write({{"x", third}, {"big", std::numeric_limits<int64_t>::min()}, {"text", std::string("\"\\\n\x01 é \xFF")}});
  file.write({{"other", std::nan("")}, {"ok", false}});
  std::istringstream lines(testing::read_file(path("a.jsonl")));
  std::string line;
  std::getline(lines, line);
  const json first = json::parse(line);
  EXPECT_EQ(first.at("x").get<double>(), third);
  EXPECT_EQ(first.at("big").get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(first.at("text"), "\"\\\n\x01 é \xEF\xBF\xBD");
  std::getline(lines, line);
  EXPECT_EQ(json::parse(line), (json{{"other", nullptr}, {"ok", false}}));
}

TEST_F(MetricsFileTest, a_resumed_run_goes_on_under_the_same_header) {
  MetricsFile(path("a.csv")).write({{"a", int64_t{1}}, {"b, c", int64_t{2}}});
  MetricsFile(path("a.csv"), {.append = true}).write({{"b, c", int64_t{3}}});
  EXPECT_EQ(testing::read_file(path("a.csv")), "a,\"b, c\"\n1,2\n,3\n");
  MetricsFile(path("a.csv")).write({{"new", int64_t{1}}});
  EXPECT_EQ(testing::read_file(path("a.csv")), "new\n1\n");
}

TEST_F(MetricsFileTest, a_row_cut_short_by_a_crash_does_not_swallow_the_next) {
  MetricsFile(path("a.jsonl")).write({{"a", 1.0}});
  testing::write_file(path("a.jsonl"), "{\"a\": 1}\n{\"a\": ");
  MetricsFile(path("a.jsonl"), {.append = true}).write({{"a", 2.0}});
  EXPECT_EQ(testing::read_file(path("a.jsonl")), "{\"a\": 1}\n{\"a\": \n{\"a\": 2}\n");
}

TEST_F(MetricsFileTest, a_row_that_does_not_fit_is_refused_and_nothing_is_written) {
  MetricsFile file(path("a.csv"));
  file.write({{"a", 1.0}});
  const std::string before = testing::read_file(path("a.csv"));
  EXPECT_THAT([&] { file.write({{"b", 1.0}}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("no column \"b\"")));
  EXPECT_THAT([&] { file.write({{"a", 1.0}, {"a", 2.0}}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("twice")));
  EXPECT_THROW(file.write({}), std::invalid_argument);
  EXPECT_EQ(testing::read_file(path("a.csv")), before);
  file.write({{"a", 2.0}});
}

struct Group {
  int rank() const { return 1; }
  int size() const { return 2; }
};

TEST_F(MetricsFileTest, in_a_job_of_several_ranks_it_must_know_which_this_is) {
  MetricsFile(path("a.csv"), {.rank = 0}).write({{"a", 1.0}});
  const ThreadJob job({.rank = 1, .size = 2});
  EXPECT_THAT([&] { MetricsFile(path("a.csv")); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("erase each other's rows. Give it the group")));
  MetricsFile(path("a.csv"), Group()).write({{"a", 2.0}});
  EXPECT_EQ(testing::read_file(path("a.csv")), "a\n1\n") << "neither has touched rank 0's rows";
}

TEST_F(MetricsFileTest, other_ranks_touch_nothing_and_a_wrong_extension_is_refused) {
  MetricsFile(path("a.csv"), {.rank = 1}).write({{"a", 1.0}});
  EXPECT_FALSE(fs::exists(path("a.csv")));
  EXPECT_THAT([&] { MetricsFile(path("a.txt")); }, ThrowsMessage<std::invalid_argument>(HasSubstr("a.txt: expected")));
  EXPECT_THROW(MetricsFile("/dev/null/a.csv"), std::runtime_error);
}

TEST(Csv, the_first_row_of_any_file_can_be_read) {
  EXPECT_THAT(csv_first_row("a,\"b \"\"x\"\"\",\r\n1,2,3"), ElementsAre("a", "b \"x\"", ""));
  EXPECT_THAT(csv_first_row(""), ElementsAre(""));
  EXPECT_THAT(csv_first_row("\"never closed, \n"), ElementsAre("never closed, \n"));
}

}  // namespace
}  // namespace ddp
