// The encoded events against the bytes that TensorBoard 2.21's own protobuf classes give for the same content.
#include "monitor/event.h"

#include <cstdio>
#include <limits>

#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += digits;
  }
  return text;
}

TEST_CASE("Event: the first of a file names the version") {
  CHECK(hex(encode_file_version(1.5)) == "09000000000000f83f1a0d627261696e2e4576656e743a32");
}

TEST_CASE("Event: a scalar is a simple value") {
  CHECK(hex(encode_scalar({.wall_time = 1.5, .step = 300}, "a/b", 0.25)) ==
        "09000000000000f83f10ac022a0c0a0a0a03612f62150000803e");
  CHECK(hex(encode_scalar({.wall_time = 1.5, .step = -1}, "a", std::numeric_limits<double>::quiet_NaN())) ==
        "09000000000000f83f10ffffffffffffffffff012a0a0a080a0161150000c07f");
}

TEST_CASE("Event: a session start carries the step to purge from") {
  CHECK(hex(encode_session_start({.wall_time = 1.5, .step = 7})) == "09000000000000f83f10073a020801");
}

TEST_CASE("Event: a histogram packs limits and counts") {
  const Histogram histogram{
      .min = -1, .max = 2, .num = 3, .sum = 4, .sum_squares = 5, .limits = {0, 1.5}, .counts = {0, 3}};
  CHECK(hex(encode_histogram({.wall_time = 1.5}, "h", histogram)) ==
        "09000000000000f83f2a580a560a01682a5109000000000000f0bf11000000000000004019000000000000084021000000000000104029"
        "000000000000144032100000000000000000000000000000f83f3a1000000000000000000000000000000840");
}

TEST_CASE("Event: a text is a tensor of the text plugin") {
  CHECK(hex(encode_text({.wall_time = 1.5, .step = 2}, "t", "hello")) ==
        "09000000000000f83f10022a2d0a2b0a0e742f746578745f73756d6d617279420f0807120412020801420568656c6c6f4a080a060a"
        "04746578"
        "74");
}

TEST_CASE("Event: an image has its shape and a PNG file") {
  const Bitmap bitmap{.height = 2, .width = 3, .channels = 1, .pixels = {1, 2, 3, 4, 5, 6}};
  const std::string event = encode_image({.wall_time = 1.5, .step = 4}, "i", bitmap);
  CHECK(test::field_at(event, {5, 1, 4, 1}).integer == 2U);
  CHECK(test::field_at(event, {5, 1, 4, 2}).integer == 3U);
  CHECK(test::field_at(event, {5, 1, 4, 3}).integer == 1U);
  CHECK(test::field_at(event, {5, 1, 4, 4}).bytes == encode_png(bitmap));
}

TEST_CASE("Event: hyper parameters list names types, values and metrics") {
  const std::string event =
      encode_hparams(1.5, {{"f", true}, {"lr", 0.5}, {"n", int64_t{3}}, {"o", std::string("sgd")}}, {{"acc", 1.0}});
  wire::MessageReader values(test::field_at(event, {5}).bytes);
  std::vector<std::string> tags;
  std::vector<std::string> contents;
  while (const auto value = values.next()) {
    tags.emplace_back(test::field_at(value->bytes, {1}).bytes);
    CHECK(test::field_at(value->bytes, {9, 1, 1}).bytes == "hparams");
    contents.push_back(hex(std::string(test::field_at(value->bytes, {9, 1, 2}).bytes)));
  }
  REQUIRE(tags == std::vector<std::string>{"_hparams_/experiment", "_hparams_/session_start_info",
                                           "_hparams_/session_end_info"});
  // HParamsPluginData{experiment{hparam_infos{name, type} …, metric_infos{name{tag}}}}
  CHECK(contents[0] ==
        "122622050a01662002"
        "22060a026c722003"
        "22050a016e2003"
        "22050a016f2001"
        "2a070a051203616363");
  // {session_start_info{hparams{key, value{bool | number | string}} …, start_time_secs}}
  CHECK(contents[1] ==
        "1a3f"
        "0a070a016612022001"
        "0a0f0a026c72120911000000000000e03f"
        "0a0e0a016e1209110000000000000840"
        "0a0a0a016f12051a03736764"
        "29000000000000f83f");
  CHECK(contents[2] ==
        "220b0801"
        "11000000000000f83f");
}

TEST_CASE("Event: a tag that is no UTF-8 is repaired") {
  CHECK(test::field_at(encode_scalar({}, "a\xFF", 1), {5, 1, 1}).bytes == "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace ddp
