#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/report.h>

#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using test::ElementsAre;

class Report {
 protected:
  Report() {
    setenv("RANK", "3", 1);
    setenv("TORCHELASTIC_ERROR_FILE", file().c_str(), 1);
  }
  ~Report() {
    unsetenv("RANK");
    unsetenv("TORCHELASTIC_ERROR_FILE");
  }

  std::filesystem::path file() const { return folder_ / "error.json"; }
  nlohmann::json content() const { return nlohmann::json::parse(std::ifstream(file())); }

  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(Report, "Report: prints one line that names the rank once") {
  const test::CapturedStderr said;
  CHECK(report(std::runtime_error("no data")) == 1);
  CHECK(report(std::runtime_error("rank 3 of 4: no data")) == 1);
  CHECK(said.text() == "error: rank 3: no data\nerror: rank 3 of 4: no data\n");
}

TEST_CASE_METHOD(Report, "Report: writes message and time for the launcher") {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  report(std::runtime_error("say \"why\" \xff"));
  CHECK(content().at("message") == "say \"why\" \xEF\xBF\xBD");  // JSON is UTF-8: a stray byte is replaced
  CHECK(content().at("timestamp").get<double>() >= before);
  CHECK(content().at("timestamp").get<double>() <= now());
}

TEST_CASE_METHOD(Report, "Report: leaves no temporary file behind") {
  report(std::runtime_error("no data"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    names.push_back(entry.path().filename());
  CHECK_THAT(names, ElementsAre("error.json"));
}

TEST_CASE_METHOD(Report, "Report: survives a limit on file sizes") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  const int status = report(std::runtime_error("no data"));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(status == 1);
  CHECK(std::filesystem::is_empty(folder_.path()));
}

TEST_CASE_METHOD(Report, "Report: survives an error file that cannot be written") {
  setenv("TORCHELASTIC_ERROR_FILE", (folder_ / "missing" / "error.json").c_str(), 1);
  CHECK(report(std::runtime_error("no data")) == 1);
}

TEST_CASE_METHOD(Report, "Report: another rank's number is not taken for this one's") {
  const test::CapturedStderr said;
  report(std::runtime_error("rank 30 of 40 has died"));
  report(std::runtime_error("rank 3"));
  report(std::runtime_error("rank 3: no data"));
  report(std::runtime_error(""));
  CHECK(said.text() ==
        "error: rank 3: rank 30 of 40 has died\nerror: rank 3\nerror: rank 3: no data\nerror: rank 3: \n");
}

TEST_CASE_METHOD(Report, "Report: is one line whatever the message is, and names no rank that nobody told") {
  const test::CapturedStderr said;
  report(std::runtime_error("two\nlines \n\n"));
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    nothing != nullptr ? setenv("RANK", nothing, 1) : unsetenv("RANK");
    report(std::runtime_error("no data"));
  }
  CHECK(said.text() == "error: rank 3: two lines\nerror: no data\nerror: no data\n");
}

TEST_CASE_METHOD(Report, "Report: the last failure stays in the file, with its message as it was") {
  report(std::runtime_error("first"));
  report(std::runtime_error("rank 3 of 4: second"));
  CHECK(content().at("message") == "rank 3 of 4: second");
}

TEST_CASE_METHOD(Report, "Report: a file that cannot take its name leaves no other one behind") {
  const auto place = folder_ / "place";
  std::filesystem::create_directory(place);
  std::filesystem::create_directory(place / "error.json");  // which no file replaces
  setenv("TORCHELASTIC_ERROR_FILE", (place / "error.json").c_str(), 1);
  CHECK(report(std::runtime_error("no data")) == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(place), {}) == 1);
  UNSCOPED_INFO("nor does a name that is empty");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(place);
  setenv("TORCHELASTIC_ERROR_FILE", "", 1);
  CHECK(report(std::runtime_error("no data")) == 1);
  std::filesystem::current_path(before);
  CHECK(std::distance(std::filesystem::directory_iterator(place), {}) == 1);
}

TEST_CASE_METHOD(Report, "Report: without a launcher nothing is written") {
  unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK(report(std::runtime_error("no data")) == 1);
  CHECK(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace ddp
