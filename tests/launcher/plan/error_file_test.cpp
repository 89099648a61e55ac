#include "launcher/plan/outcome/error_file.h"

#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

TEST_CASE("ErrorFile: torch's nested form is read") {
  const auto record = parse_error_record(
      R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "…", "timestamp": "1700000000"}}})");
  REQUIRE(record);
  CHECK(record->message == "ValueError: x");
  CHECK(record->time == 1700000000);
}

TEST_CASE("ErrorFile: the flat form is read") {
  const auto record = parse_error_record(R"({"message": "text", "timestamp": 1700000000.25})");
  REQUIRE(record);
  CHECK(record->message == "text");
  CHECK(record->time == 1700000000.25);
}

TEST_CASE("ErrorFile: what is no such JSON is the message itself") {
  const auto text =
      GENERATE(values<std::string>({"plain text", "{", "[1,2]", "5", "{\"a\": 1}", "{\"message\": 5}", "\xff\xfe"}));
  CAPTURE(text);
  const auto record = parse_error_record(text);
  REQUIRE(record);
  CHECK(record->message == text);
  CHECK_FALSE(record->time);
}

TEST_CASE("ErrorFile: nothing in it means no record") {
  CHECK_FALSE(parse_error_record(""));
  CHECK_FALSE(parse_error_record(" \n\t"));
  CHECK_FALSE(read_error_file("/nonexistent/error.json"));
}

TEST_CASE("ErrorFile: a time that is not a number is left out") {
  const auto time = GENERATE(
      values<std::string>({"\"\"", "\"soon\"", "[]", "null", "true", "\"17x\"", "\"nan\"", "\"inf\"", "\"-inf\""}));
  CAPTURE(time);
  const auto record = parse_error_record(R"({"message": "m", "timestamp": )" + time + "}");
  REQUIRE(record);
  CHECK(record->message == "m");
  CHECK_FALSE(record->time);
}

TEST_CASE("ErrorFile: deep nesting is survived") {
  const std::string deep(100000, '[');
  REQUIRE(parse_error_record(deep));
  REQUIRE(parse_error_record(deep + std::string(100000, ']')));
}

}  // namespace
}  // namespace launcher
