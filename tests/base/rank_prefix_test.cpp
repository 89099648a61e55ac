// Errors name the rank where no process group is at hand, and write numbers as Python does.
#include "base/rank_prefix.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/job.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

// Sets a variable of this process, and puts back what was there.
class Variable {
 public:
  Variable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    value != nullptr ? ::setenv(name_.c_str(), value, 1) : ::unsetenv(name_.c_str());
  }
  ~Variable() { before_ ? ::setenv(name_.c_str(), before_->c_str(), 1) : ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_{};
};

TEST_CASE("RankPrefix: names the rank that the launcher told") {
  const Variable rank("RANK", "1");
  const Variable size("WORLD_SIZE", "2");
  const Variable address("MASTER_ADDR", "127.0.0.1");
  const Variable port("MASTER_PORT", "29500");
  CHECK(rank_prefix() == "rank 1 of 2: ");
}

TEST_CASE("RankPrefix: is that of a single process without a launcher") {
  const Variable rank("RANK", nullptr);
  const Variable size("WORLD_SIZE", nullptr);
  CHECK(rank_prefix() == "rank 0 of 1: ");
}

TEST_CASE("RankPrefix: is that of a rank that is a thread") {
  const Variable rank("RANK", "1");
  const Variable size("WORLD_SIZE", "2");
  const ThreadJob job({.rank = 2, .size = 3});
  CHECK(rank_prefix() == "rank 2 of 3: ");
}

TEST_CASE("RankPrefix: is empty where the launcher's variables contradict each other") {
  const Variable address("MASTER_ADDR", "127.0.0.1");
  const Variable port("MASTER_PORT", "29500");
  const auto [rank, size] = GENERATE(table<const char*, const char*>({
      {"2", "2"},      // no such rank
      {"-1", "2"},     // nor this
      {"one", "2"},    // no number
      {"", "2"},       // nothing
      {"1", nullptr},  // of how many?
      {nullptr, "2"},  // which one?
      {"0", "2 "},     // not quite a number
      {"0", "0"},      // no rank at all
      {"0", "1e3"},    // a number, but no whole one
      {"0x0", "2"},    // not in C's ways
      {"0", "9999999999999999999999"},
  }));
  const Variable as_rank("RANK", rank);
  const Variable as_size("WORLD_SIZE", size);
  INFO("RANK=" << (rank != nullptr ? rank : "unset") << " WORLD_SIZE=" << (size != nullptr ? size : "unset"));
  CHECK(rank_prefix() == "");
}

TEST_CASE("RankPrefix: is empty where the address is missing") {
  const Variable rank("RANK", "1");
  const Variable size("WORLD_SIZE", "2");
  const Variable address("MASTER_ADDR", nullptr);
  CHECK(rank_prefix() == "");
}

// Expected texts are CPython's f"{value}".
TEST_CASE("NumberText: chooses between digits and exponents where Python does") {
  CHECK(number_text(0.0) == "0.0");
  CHECK(number_text(-0.0) == "-0.0");
  CHECK(number_text(1.0) == "1.0");
  CHECK(number_text(-250000.0) == "-250000.0");
  CHECK(number_text(0.1) == "0.1");
  CHECK(number_text(1e5) == "100000.0");
  CHECK(number_text(1e15) == "1000000000000000.0");
  CHECK(number_text(3e15) == "3000000000000000.0");
  CHECK(number_text(9999999999999998.0) == "9999999999999998.0");
  CHECK(number_text(1e16) == "1e+16");
  CHECK(number_text(1e17) == "1e+17");
  CHECK(number_text(1e22) == "1e+22");
  CHECK(number_text(1e100) == "1e+100");
  CHECK(number_text(0.001) == "0.001");
  CHECK(number_text(1e-4) == "0.0001");
  CHECK(number_text(0.00012) == "0.00012");
  CHECK(number_text(9.999999999999999e-5) == "9.999999999999999e-05");
  CHECK(number_text(1e-5) == "1e-05");
  CHECK(number_text(1.5e-5) == "1.5e-05");
  CHECK(number_text(-1e-7) == "-1e-07");
}

TEST_CASE("NumberText: has the fewest digits that give the number again") {
  CHECK(number_text(1.0 / 3) == "0.3333333333333333");
  CHECK(number_text(0.1 + 0.2) == "0.30000000000000004");
  CHECK(number_text(2251799813685247.5) == "2251799813685247.5");
  CHECK(number_text(0x1.600ba31d8f4bep+52) == "6193249187853502.0");
  CHECK(number_text(0x1.51285b304aedbp+58) == "3.796057570753717e+17");
  CHECK(number_text(-0x1.96a04e7d80068p-111) == "-6.1182310176339744e-34");
  CHECK(number_text(0x1.82a012b5c5cd1p-913) == "2.1810430966829764e-275");
  CHECK(number_text(5e-324) == "5e-324");
  CHECK(number_text(std::numeric_limits<double>::min()) == "2.2250738585072014e-308");
  CHECK(number_text(-std::numeric_limits<double>::max()) == "-1.7976931348623157e+308");
}

TEST_CASE("NumberText: knows one NaN and two infinities") {
  CHECK(number_text(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(number_text(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(number_text(std::numeric_limits<double>::quiet_NaN()) == "nan");
  UNSCOPED_INFO("as 0/0 is on many processors");
  CHECK(number_text(std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0)) == "nan");
}

TEST_CASE("NumberText: of any number reads back as that number") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-30, 30);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::pow(10.0, exponent(random)) * (random() % 2 == 0 ? 1 : -1);
    const std::string text = number_text(value);
    INFO(text);
    REQUIRE(std::stod(text) == value);
    REQUIRE(text.find_first_of(".e") != std::string::npos);  // never taken for a whole number
    const bool has_exponent = text.find('e') != std::string::npos;
    REQUIRE(has_exponent == (std::abs(value) < 1e-4 || std::abs(value) >= 1e16));
  }
}

}  // namespace
}  // namespace ddp
