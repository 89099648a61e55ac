#include <nlohmann/json.hpp>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "tests/support/catch.h"

namespace ddp::safetensors {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(const std::string& json, uint64_t data_bytes) {
  return error_of([&] { parse_header(json, data_bytes); });
}

TEST_CASE("SafetensorsHeader: reads what it writes") {
  Header header;
  header.metadata = {{"epoch", "3"}, {"quotes \" and \n", "ü\\"}};
  header.tensors = {{.name = "b", .dtype = DType::kF32, .shape = {2, 3}},
                    {.name = "a", .dtype = DType::kF32, .shape = {}},
                    {.name = "flags", .dtype = DType::kBool, .shape = {5}},
                    {.name = "empty", .dtype = DType::kI64, .shape = {4, 0}},
                    {.name = "steps", .dtype = DType::kI64, .shape = {1}}};
  assign_ranges(header.tensors);
  const auto bytes = format_header(header);
  CHECK(bytes.size() % 8 == 0);
  const auto length = parse_header_length(bytes, bytes.size() + 41);
  REQUIRE(length == bytes.size() - kLengthBytes);
  const auto read = parse_header(bytes.substr(kLengthBytes), 8 + 4 + 24 + 5);
  CHECK(read.metadata == header.metadata);
  REQUIRE(read.tensors.size() == 5);
  // Largest alignment first, then by name; the data then needs no padding.
  const std::vector<std::string> order = {"empty", "steps", "a", "b", "flags"};
  for (size_t i = 0; i < order.size(); ++i) {
    CHECK(read.tensors[i].name == order[i]);
    CHECK(read.tensors[i].shape == header.tensors[i].shape);
    CHECK(read.tensors[i].dtype == header.tensors[i].dtype);
    CHECK(read.tensors[i].begin % dtype_bytes(read.tensors[i].dtype) == 0);
  }
}

TEST_CASE("SafetensorsHeader: has the bytes of the reference writer") {
  // What Python's safetensors 0.8 writes for save({"w": zeros(2, 2), "n": int64 scalar}, metadata={"epoch": "3"}).
  Header header;
  header.metadata = {{"epoch", "3"}};
  header.tensors = {{.name = "w", .dtype = DType::kF32, .shape = {2, 2}},
                    {.name = "n", .dtype = DType::kI64, .shape = {}}};
  assign_ranges(header.tensors);
  CHECK(format_header(header).substr(kLengthBytes) ==
        R"({"__metadata__":{"epoch":"3"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
        R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}}      )");
}

TEST_CASE("SafetensorsHeader: accepts what the reference reader accepts") {
  CHECK(parse_header("{}", 0).tensors.size() == 0);
  CHECK(parse_header("{\"__metadata__\":null}   \n", 0).metadata.size() == 0);
  CHECK(parse_header(R"({"__metadata__":{}})", 0).tensors.size() == 0);
  const auto scalar = parse_header(R"({"x":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"}})", 2);
  CHECK(scalar.tensors.at(0).shape.empty());
  const auto empty = parse_header(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]}})",
      2);
  CHECK(empty.tensors.at(0).name == "a");
}

TEST_CASE("SafetensorsHeader: refuses every broken rule by name") {
  struct Case {
    const char* json;
    uint64_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"{", 0, "not valid JSON"},
      {"{}x", 0, "not valid JSON"},
      {"{}{}", 0, "not valid JSON"},
      {"{\"a\":{\"dtype\":\"\xff\"}}", 0, "not valid JSON"},
      {R"({"a":1})", 0, "'a' in the header must be an object, but is a number"},
      {R"({"a":[]})", 0, "must be an object, but is an array"},
      {R"({"a":{}})", 0, "tensor 'a' must have dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 0, "must have dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "exactly two data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1, "exactly two data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[]}})", 1, "exactly two data_offsets"},
      {R"({"a":{"dtype":"C128","shape":[1],"data_offsets":[0,16]}})", 16, "dtype 'C128', which is not supported"},
      {R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype cannot be or hold a number"},
      {R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "shape cannot be or hold a number"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "shape cannot be or hold a negative number"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "not a whole number below 2^64"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})", 1,
       "not a whole number below 2^64"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, "shape cannot be or hold an array"},
      {R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, "shape cannot be or hold a string"},
      {R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}})", 1, "shape cannot be or hold a boolean"},
      {R"({"a":{"dtype":"U8","shape":[null],"data_offsets":[0,1]}})", 1, "shape cannot be or hold null"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1,
       "a size of 9223372036854775808"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "needs more than 2^63 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}})", 0, "more than 2^63 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", 7, "shape [2] needs 8 bytes, but has 7"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2, "ends before it begins"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "must begin at 0: the data has a hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "a hole or an overlap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "a hole or an overlap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "need 2 bytes of data, but the file has 3"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "the file has 1: it was truncated"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, "tensor 'a' appears twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "two fields named dtype"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1}})", 0, "an unknown field 'more'"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ must map strings to strings, but 'a' is a number"},
      {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ must map strings to strings, but 'a' is an object"},
      {R"({"__metadata__":{"a":[]}})", 0, "__metadata__ must map strings to strings, but 'a' is an array"},
      {R"({"__metadata__":"x"})", 0, "must be an object, but is a string"},
      {R"({"__metadata__":{"a":"","a":""}})", 0, "metadata 'a' appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ appears twice"},
      {R"({"a\nb":1})", 0, "'a\\x0ab'"},
  };
  for (const auto& test : cases) {
    INFO(test.json);
    CHECK_THAT(refusal(test.json, test.data_bytes), ContainsSubstring(test.message));
  }
  CHECK_THAT(refusal(std::string("{}\0{", 4), 0), ContainsSubstring("null byte"));
  std::string deep = R"({"a":{"dtype":"U8","data_offsets":[0,1],"shape":[1)";
  for (int i = 0; i < 64; ++i) deep += ",1";
  CHECK_THAT(refusal(deep + "]}}", 1), ContainsSubstring("more than 64 dimensions"));
  CHECK_THAT(refusal("{\"a\":" + std::string(1'000'000, '['), 0), ContainsSubstring("but is an array"));
}

TEST_CASE("SafetensorsHeader: checks the length before anything is read") {
  const auto length_bytes = [](uint64_t length) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes;
  };
  CHECK(parse_header_length(length_bytes(10), 18) == 10);
  CHECK_THROWS_WITH(parse_header_length("1234567", 7), ContainsSubstring("7 bytes, too few"));
  CHECK_THROWS_WITH(parse_header_length(length_bytes(11), 18), ContainsSubstring("only 10 follow"));
  CHECK_THROWS_WITH(parse_header_length(length_bytes(100'000'001), uint64_t{1} << 40),
                    ContainsSubstring("more than the allowed 100000000"));
  CHECK_THROWS_WITH(parse_header_length(length_bytes(~uint64_t{0}), 18), ContainsSubstring("more than"));
}

TEST_CASE("SafetensorsHeader: refuses to write what no reader takes") {
  const auto refuses = [](TensorEntry tensor, Metadata metadata = {}) {
    Header header{.tensors = {std::move(tensor)}, .metadata = std::move(metadata)};
    return error_of([&] {
      assign_ranges(header.tensors);
      format_header(header);
    });
  };
  CHECK_THAT(refuses({.name = "__metadata__"}), ContainsSubstring("cannot be named __metadata__"));
  CHECK_THAT(refuses({.name = "\xff"}), ContainsSubstring("not valid UTF-8"));
  CHECK_THAT(refuses({.name = "a"}, {{"k", "\xc3"}}), ContainsSubstring("not valid UTF-8"));
  CHECK_THAT(refuses({.name = "a", .shape = {int64_t{1} << 62}}), ContainsSubstring("too large"));
  CHECK_THAT(refuses({.name = "a"}, {{"k", std::string(100'000'000, 'x')}}),
             ContainsSubstring("more than the format's"));
}

TEST_CASE("SafetensorsHeader: names in messages are harmless") {
  CHECK(quote_name("a\x1b[2J\x7f") == "'a\\x1b[2J\\x7f'");
  CHECK(quote_name(std::string(1'000'000, 'x')).size() < 200);
  UNSCOPED_INFO("C1 begins commands as well, and what is no UTF-8 shall spoil no report");
  CHECK(quote_name("\xc2\x9b"
                   "2J \xc3\xa4 \xff\xc3") == "'\\xc2\\x9b2J \xc3\xa4 \\xff\\xc3'");
  CHECK(quote_name("\xc2\xa0") == "'\xc2\xa0'");
  for (size_t front = 115; front <= 121; ++front) {
    INFO("no character is cut in two, " << front);
    const auto text = quote_name(std::string(front, 'x') + "\xf0\x9f\x9a\x80");
    CHECK(nlohmann::json(text).dump().size() > front);
    CHECK(text.ends_with(front <= 116 ? "\xf0\x9f\x9a\x80'" : "x…'"));
  }
  CHECK(quote_name(std::string(120, 'x')) == "'" + std::string(120, 'x') + "'");
}

}  // namespace
}  // namespace ddp::safetensors
