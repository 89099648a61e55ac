// Values beside a model come back as they were, to the bit, or are refused with a reason.
#include <cmath>
#include <limits>
#include <string>

#include <ddprun/checkpoint/training_state.h>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kLargest = std::numeric_limits<uint64_t>::max();

CheckpointValues there_and_back(const CheckpointValues& values) {
  return CheckpointValues::from_json(values.to_json());
}

TEST_CASE("CheckpointValues: numbers that JSON does not have come back") {
  CheckpointValues values;
  values.set("best", kInfinity);
  values.set("worst", -kInfinity);
  values.set("loss", std::nan(""));
  values.set("float", std::numeric_limits<float>::infinity());
  values.set("text", "inf");
  const auto back = there_and_back(values);
  CHECK(back.get<double>("best") == kInfinity);
  CHECK(back.get<double>("worst") == -kInfinity);
  CHECK(std::isnan(back.get<double>("loss")));
  CHECK(back.get<double>("float") == kInfinity);
  CHECK(back.get<std::string>("text") == "inf");
  CHECK(there_and_back(back).to_json() == values.to_json());
  CHECK_THAT(values.to_json(), ContainsSubstring("\"__float__\": \"inf\""));
}

TEST_CASE("CheckpointValues: finite numbers keep every bit") {
  for (const double value : {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 3.0}) {
    CheckpointValues values;
    values.set("x", value);
    const auto back = there_and_back(values).get<double>("x");
    CHECK(back == value);
    CHECK(std::signbit(back) == std::signbit(value));
  }
}

TEST_CASE("CheckpointValues: whole numbers of64 bits are kept") {
  CheckpointValues values;
  values.set("seed", kLargest);
  values.set("half", uint64_t{1} << 63);
  values.set("small", size_t{7});
  values.set("least", std::numeric_limits<int64_t>::min());
  const auto back = there_and_back(values);
  CHECK(back.get<uint64_t>("seed") == kLargest);
  CHECK(back.get<uint64_t>("half") == uint64_t{1} << 63);
  CHECK(back.get<double>("half") == std::ldexp(1.0, 63));
  CHECK(back.get<int64_t>("small") == 7);
  CHECK(back.get<uint64_t>("small") == 7);
  CHECK(back.get<int64_t>("least") == std::numeric_limits<int64_t>::min());
  CHECK_THROWS_WITH(back.get<int64_t>("seed"), ContainsSubstring("'seed' is 18446744073709551615, which"));
  CHECK_THROWS_WITH(back.get<uint64_t>("least"), ContainsSubstring("does not fit into the requested type"));
}

TEST_CASE("CheckpointValues: whole numbers beyond64 bits are refused wherever they stand") {
  for (const char* text :
       {R"({"x": 18446744073709551616})", R"({"x": -9223372036854775809})",
        R"({"x": [1, {"y": 99999999999999999999}]})", R"({"a": "\"", "x": 100000000000000000000})"}) {
    INFO(text);
    CHECK_THROWS_WITH(CheckpointValues::from_json(text), ContainsSubstring("does not fit into 64 bits"));
  }
  CheckpointValues values;
  values.set("x", JsonText{"[18446744073709551616]"});
  CHECK_THROWS_WITH(values.to_json(), ContainsSubstring("does not fit into 64 bits"));
  const auto fine = CheckpointValues::from_json(
      R"({"x": "18446744073709551616", "y\"99999999999999999999": 1e20, "z": [18446744073709551615, -0.5e-3]})");
  CHECK(fine.get<double>("y\"99999999999999999999") == 1e20);
  CHECK(fine.get<JsonText>("z").text == "[18446744073709551615,-0.0005]");
}

TEST_CASE("CheckpointValues: a pt file holds the numbers themselves") {
  CheckpointValues values;
  values.set("best", -kInfinity);
  values.set("seed", kLargest);
  test::TextSink sink;
  pt::write_pt(sink, {.values = "{\"values\": " + values.to_json() + "}"});
  // BINFLOAT is big endian; LONG1 has nine bytes, little endian, the last one the sign.
  CHECK_THAT(sink.text, ContainsSubstring(std::string("G\xff\xf0\0\0\0\0\0\0", 9)));
  CHECK_THAT(sink.text, ContainsSubstring(std::string("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0", 11)));
}

}  // namespace
}  // namespace ddp
