#include "launcher/outcome/error_file.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

TEST(ErrorFile, TorchsNestedForm) {
  const auto record = parse_error_record(
      R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "…", "timestamp": "1700000000"}}})");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->message, "ValueError: x");
  EXPECT_EQ(record->time, 1700000000);
}

TEST(ErrorFile, TheFlatForm) {
  const auto record = parse_error_record(R"({"message": "text", "timestamp": 1700000000.25})");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->message, "text");
  EXPECT_EQ(record->time, 1700000000.25);
}

TEST(ErrorFile, WhatIsNoSuchJsonIsTheMessageItself) {
  for (const std::string text : {"plain text", "{", "[1,2]", "5", "{\"a\": 1}", "{\"message\": 5}", "\xff\xfe"}) {
    const auto record = parse_error_record(text);
    ASSERT_TRUE(record) << text;
    EXPECT_EQ(record->message, text);
    EXPECT_FALSE(record->time) << text;
  }
}

TEST(ErrorFile, NothingInItMeansNoRecord) {
  EXPECT_FALSE(parse_error_record(""));
  EXPECT_FALSE(parse_error_record(" \n\t"));
  EXPECT_FALSE(read_error_file("/nonexistent/error.json"));
}

TEST(ErrorFile, ATimeThatIsNoNumberIsLeftOut) {
  for (const std::string time : {"\"\"", "\"soon\"", "[]", "null", "true", "\"17x\""}) {
    const auto record = parse_error_record(R"({"message": "m", "timestamp": )" + time + "}");
    ASSERT_TRUE(record);
    EXPECT_EQ(record->message, "m");
    EXPECT_FALSE(record->time) << time;
  }
}

TEST(ErrorFile, DeepNestingIsSurvived) {
  const std::string deep(100000, '[');
  ASSERT_TRUE(parse_error_record(deep));
  ASSERT_TRUE(parse_error_record(deep + std::string(100000, ']')));
}

}  // namespace
}  // namespace launcher
