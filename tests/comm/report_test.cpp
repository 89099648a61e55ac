#include "comm/report.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ddp {
namespace {

using testing::ElementsAre;

class ReportTest : public testing::Test {
 protected:
  ReportTest() : folder_(std::filesystem::temp_directory_path() / ("ddprun_report_" + std::to_string(getpid()))) {
    std::filesystem::create_directory(folder_);
    setenv("RANK", "3", 1);
    setenv("TORCHELASTIC_ERROR_FILE", file().c_str(), 1);
  }
  ~ReportTest() override {
    unsetenv("RANK");
    unsetenv("TORCHELASTIC_ERROR_FILE");
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path file() const { return folder_ / "error.json"; }
  nlohmann::json content() const { return nlohmann::json::parse(std::ifstream(file())); }

  std::filesystem::path folder_;
};

TEST_F(ReportTest, prints_one_line_that_names_the_rank_once) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(report(std::runtime_error("no data")), 1);
  EXPECT_EQ(report(std::runtime_error("rank 3 of 4: no data")), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: rank 3: no data\nerror: rank 3 of 4: no data\n");
}

TEST_F(ReportTest, writes_message_and_time_for_the_launcher) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  report(std::runtime_error("say \"why\" \xff"));
  EXPECT_EQ(content().at("message"), "say \"why\" \xEF\xBF\xBD");  // JSON is UTF-8: a stray byte is replaced
  EXPECT_GE(content().at("timestamp").get<double>(), before);
  EXPECT_LE(content().at("timestamp").get<double>(), now());
}

TEST_F(ReportTest, leaves_no_temporary_file_behind) {
  report(std::runtime_error("no data"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("error.json"));
}

TEST_F(ReportTest, survives_an_error_file_that_cannot_be_written) {
  setenv("TORCHELASTIC_ERROR_FILE", (folder_ / "missing" / "error.json").c_str(), 1);
  EXPECT_EQ(report(std::runtime_error("no data")), 1);
}

}  // namespace
}  // namespace ddp
