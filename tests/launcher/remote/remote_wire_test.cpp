#include <string>
#include <vector>

#include "launcher/remote/wire.h"
#include "tests/support/catch.h"

namespace launcher::remote {
namespace {

const Plan kPlan = {.arguments = {"--grace=3", ""},
                    .program = {"./train", "a b", std::string("\xff\n\0'", 4)},
                    .environment = {"A=1", "B=" + std::string(300'000, 'x')},
                    .folder = "/work dir",
                    .secret = "s",
                    .window = 1,
                    .grace_ms = 2,
                    .is_check = true};

TEST_CASE("Wire: messages arrive as they were") {
  CHECK(decode<Plan>(encode(kPlan)) == kPlan);
  const Task task = {3, {"ssh -F x", 22, "key", 1000, 16, "d", "/opt/d"}, {{4, "b", false}, {5, "localhost", true}}};
  CHECK(decode<Task>(encode(task)) == task);
  const Hello hello = {"host", "a b c d", 29500, true};
  CHECK(decode<Hello>(encode(hello)) == hello);
  const NodeArguments words = {{"--nnodes=2"}, true};
  CHECK(decode<NodeArguments>(encode(words)) == words);
  CHECK(decode<Ending>(encode(Ending{127, "why"})) == Ending{127, "why"});
  CHECK(decode<Clock>(encode(Clock{1, ~std::uint64_t{0}})) == Clock{1, ~std::uint64_t{0}});
}

TEST_CASE("Wire: a message that is cut, or too long, is none") {
  const std::string bytes = encode(Task{3, {}, {{4, "b", false}}});
  for (std::size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode<Task>(bytes.substr(0, size)));
  CHECK_FALSE(decode<Task>(bytes + "x"));
  CHECK_FALSE(decode<NodeArguments>(std::string("\xff\xff\xff\xff", 4)));
}

TEST_CASE("Wire: frames are found wherever the bytes are cut") {
  const std::vector<Frame> frames = {
      {Kind::kOutput, 7, "x\ny"}, {Kind::kPing, 0, ""}, {Kind::kPlan, kEveryHost, encode(kPlan)}};
  std::string bytes;
  for (const Frame& frame : frames) bytes += to_bytes(frame);
  for (const std::size_t step : {std::size_t{1}, std::size_t{5}, std::size_t{4096}, bytes.size()}) {
    CAPTURE(step);
    FrameReader reader;
    std::size_t found = 0;
    for (std::size_t begin = 0; begin < bytes.size(); begin += step) {
      reader.feed(std::string_view(bytes).substr(begin, step));
      while (const auto frame = reader.next()) {
        REQUIRE(found < frames.size());
        CHECK(frame->kind == frames[found].kind);
        CHECK(frame->host == frames[found].host);
        CHECK(frame->bytes == frames[found].bytes);
        ++found;
      }
    }
    CHECK(found == frames.size());
  }
}

TEST_CASE("Wire: a length that nobody sends ends the stream") {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff", 4), std::string("\3\0\0\0\1", 5), std::string("GET / HTTP/1.1\r\n")}) {
    FrameReader reader;
    reader.feed(bytes);
    CHECK_FALSE(reader.next());
    CHECK(reader.is_broken());
  }
}

TEST_CASE("Wire: amounts stand one behind the other") {
  const std::string bytes = encode_amount(1) + encode_amount(70'000) + "x";
  std::string_view left = bytes;
  CHECK(take_amount(left) == 1);
  CHECK(take_amount(left) == 70'000);
  CHECK_FALSE(take_amount(left));
}

}  // namespace
}  // namespace launcher::remote
