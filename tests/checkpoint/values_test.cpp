// Values beside a model come back as they were, to the bit, or are refused with a reason.
#include "checkpoint/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/checkpoint/text_sink.h"

namespace ddp {
namespace {

using test::message_of;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kLargest = std::numeric_limits<uint64_t>::max();

CheckpointValues there_and_back(const CheckpointValues& values) {
  return CheckpointValues::from_json(values.to_json());
}

TEST(CheckpointValues, NumbersThatJsonDoesNotHaveComeBack) {
  CheckpointValues values;
  values.set("best", kInfinity);
  values.set("worst", -kInfinity);
  values.set("loss", std::nan(""));
  values.set("float", std::numeric_limits<float>::infinity());
  values.set("text", "inf");
  const auto back = there_and_back(values);
  EXPECT_EQ(back.get<double>("best"), kInfinity);
  EXPECT_EQ(back.get<double>("worst"), -kInfinity);
  EXPECT_TRUE(std::isnan(back.get<double>("loss")));
  EXPECT_EQ(back.get<double>("float"), kInfinity);
  EXPECT_EQ(back.get<std::string>("text"), "inf");
  EXPECT_EQ(there_and_back(back).to_json(), values.to_json());
  EXPECT_THAT(values.to_json(), HasSubstr("\"__float__\": \"inf\""));
}

TEST(CheckpointValues, FiniteNumbersKeepEveryBit) {
  for (const double value : {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 3.0}) {
    CheckpointValues values;
    values.set("x", value);
    const auto back = there_and_back(values).get<double>("x");
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
}

TEST(CheckpointValues, WholeNumbersOf64BitsAreKept) {
  CheckpointValues values;
  values.set("seed", kLargest);
  values.set("half", uint64_t{1} << 63);
  values.set("small", size_t{7});
  values.set("least", std::numeric_limits<int64_t>::min());
  const auto back = there_and_back(values);
  EXPECT_EQ(back.get<uint64_t>("seed"), kLargest);
  EXPECT_EQ(back.get<uint64_t>("half"), uint64_t{1} << 63);
  EXPECT_EQ(back.get<double>("half"), std::ldexp(1.0, 63));
  EXPECT_EQ(back.get<int64_t>("small"), 7);
  EXPECT_EQ(back.get<uint64_t>("small"), 7);
  EXPECT_EQ(back.get<int64_t>("least"), std::numeric_limits<int64_t>::min());
  EXPECT_THAT(message_of([&] { back.get<int64_t>("seed"); }), HasSubstr("'seed' is 18446744073709551615, which"));
  EXPECT_THAT(message_of([&] { back.get<uint64_t>("least"); }), HasSubstr("does not hold"));
}

TEST(CheckpointValues, WholeNumbersBeyond64BitsAreRefusedWhereverTheyStand) {
  for (const char* text :
       {R"({"x": 18446744073709551616})", R"({"x": -9223372036854775809})",
        R"({"x": [1, {"y": 99999999999999999999}]})", R"({"a": "\"", "x": 100000000000000000000})"}) {
    EXPECT_THAT(message_of([&] { CheckpointValues::from_json(text); }), HasSubstr("does not fit into 64 bits")) << text;
  }
  CheckpointValues values;
  values.set("x", JsonText{"[18446744073709551616]"});
  EXPECT_THAT(message_of([&] { static_cast<void>(values.to_json()); }), HasSubstr("does not fit into 64 bits"));
  const auto fine = CheckpointValues::from_json(
      R"({"x": "18446744073709551616", "y\"99999999999999999999": 1e20, "z": [18446744073709551615, -0.5e-3]})");
  EXPECT_EQ(fine.get<double>("y\"99999999999999999999"), 1e20);
  EXPECT_EQ(fine.get<JsonText>("z").text, "[18446744073709551615,-0.0005]");
}

TEST(CheckpointValues, APtFileHoldsTheNumbersThemselves) {
  CheckpointValues values;
  values.set("best", -kInfinity);
  values.set("seed", kLargest);
  test::TextSink sink;
  pt::write_pt(sink, {.values = "{\"values\": " + values.to_json() + "}"});
  // BINFLOAT is big endian; LONG1 has nine bytes, little endian, the last one the sign.
  EXPECT_THAT(sink.text, HasSubstr(std::string("G\xff\xf0\0\0\0\0\0\0", 9)));
  EXPECT_THAT(sink.text, HasSubstr(std::string("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0", 11)));
}

}  // namespace
}  // namespace ddp
