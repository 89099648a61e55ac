#include "launcher/nodes/control/control_messages.h"

#include <string>
#include <vector>

#include "launcher/nodes/control/frames.h"
#include "tests/support/catch.h"

namespace launcher::control {
namespace {

using namespace std::chrono_literals;

FailureNotice notice() {
  return {.node = 3,
          .exit_status = 44,
          .text = "rank 9 on host b exited with status 44",
          .time = std::chrono::system_clock::time_point(1'700'000'000'123'456us),
          .is_consequence = true,
          .is_final = true,
          .stop_signal = 15,
          .details = {"  when:   then", "  error:", "    it was \"bad\""}};
}

std::vector<Message> one_of_each_kind() {
  return {Hello{.version = "0.1.0",
                .host = "b",
                .pid = 12,
                .nnodes = 4,
                .node_rank = 2,
                .run_id = "job",
                .backend = "static",
                .max_restarts = 1,
                .local_world_size = 8,
                .role = "trainer",
                .start_failure = JoinFailure{"there is no such program", 127}},
          Hello{.nnodes = 2},
          Challenge{"abc"},
          Challenge{"abc", 0},
          Answer{"abc", "def", "012", "session", 1'000'000'000'000, false, 7},
          Welcome{"def", "345", 1'000'000'000'000, 250ms},
          NodeDropped{},
          Refusal{{"the nodes disagree", 125}},
          Ready{2},
          Waiting{"waiting for node 1"},
          Waiting{"the job runs with 2 nodes", true},
          Start{1, {1, 2, {4, 8, 2, 6}}, 29500, 1, true},
          Leaving{{"told to stop", 143}, true},
          Failed{1, notice()},
          FailureQuery{1, notice()},
          FailureQuery{1},
          Report{1, notice(), true},
          Report{1},
          Verdict{1, notice()},
          Acknowledged{1},
          Stopped{1, 85},
          AllStopped{1, 143},
          Ended{1},
          AllEnded{1},
          Word{1, 2, kEveryNode, R"({"hang":"look"})"},
          Ping{123'456, 1000ms},
          Pong{123'456, 1'700'000'000'123'456, 30'000ms}};
}

TEST_CASE("ControlMessages: what is written is read back the same") {
  for (const Message& message : one_of_each_kind()) {
    const std::string text = to_text(message);
    INFO(text);
    const auto read = parse_message(text);
    REQUIRE(read);
    CHECK(read->index() == message.index());
    CHECK(to_text(*read) == text);
  }
}

TEST_CASE("ControlMessages: what no launcher sends is refused") {
  for (const char* text :
       {"", "1", "[]", "{}", R"({"is":1})", R"({"is":"no such"})", R"({"is":"ready"})", R"({"is":"ready","round":-1})",
        R"({"is":"ready","round":"1"})", R"({"is":"ready","round":1.5})",
        R"({"is":"ready","round":18446744073709551615})", R"({"is":"verdict","round":1,"notice":[]})",
        R"({"is":"ping","sent":1,"patience":0})", R"({"is":"waiting","text":5})"}) {
    INFO(text);
    CHECK_FALSE(parse_message(text));
  }
}

TEST_CASE("ControlMessages: text that would act on a terminal is made harmless") {
  const auto message = parse_message(R"({"is":"waiting","text":"a\u001b[2Jb\nc\u009bd"})");
  REQUIRE(message);
  const std::string& text = std::get<Waiting>(*message).text;
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find("\xc2\x9b") == std::string::npos);
}

TEST_CASE("ControlMessages: lines of a report that would act on a terminal are made harmless") {
  FailureNotice hostile = notice();
  hostile.details = {"a line"};
  std::string text = to_text(Verdict{0, hostile});
  text.replace(text.find("a line"), 6, "\\u001b[2Jb\\nc");
  const auto message = parse_message(text);
  REQUIRE(message);
  CHECK(std::get<Verdict>(*message).notice.details[0].find_first_of("\x1b\n") == std::string::npos);
}

TEST_CASE("ControlMessages: text of any length and any bytes fits a frame") {
  FailureNotice long_one = notice();
  long_one.text = std::string(1'000'000, '\x01') + "\xff";
  for (int i = 0; i < 100; ++i) long_one.details.push_back(std::string(10'000, i % 2 == 0 ? '"' : '\x01'));
  const std::string text = to_text(FailureQuery{1, long_one});
  CHECK(text.size() <= kMaxMessageBytes);
  CHECK(parse_message(text));
  for (const char c : {'\x01', '"', '\xff'}) {
    const std::string word = to_text(Word{.text = std::string(1'000'000, c)});
    CHECK(word.size() <= kMaxMessageBytes);
    CHECK(parse_message(word));
  }
}

TEST_CASE("Frames: messages come whole, however their bytes are cut") {
  FrameReader reader;
  std::vector<std::string> got;
  for (const char byte : to_frame("one") + to_frame("") + to_frame(std::string(300, 'x'))) {
    reader.feed(std::string_view(&byte, 1));
    while (auto message = reader.next()) got.push_back(message->bytes);
  }
  CHECK(got == std::vector<std::string>{"one", "", std::string(300, 'x')});
  CHECK_FALSE(reader.is_broken());
}

TEST_CASE("Frames: what is carried comes between messages, with its round, however it is cut") {
  const std::string large(kMaxCarriedBytes + 5, 'v');
  std::string_view left = large;
  FrameBuilder first(7);
  first.fill(left);
  CHECK(first.is_full());
  CHECK(left.size() == 5);
  FrameBuilder second(0x7fffffff);
  second.fill(left);
  second.fill(left = "more");
  CHECK(second.content_size() == 9);
  const std::string wire = first.take_frame() + to_frame("message") + second.take_frame();
  const std::size_t cut = GENERATE(1U, 3U, 8U, 4096U, 1U << 20);
  FrameReader reader;
  std::vector<Arrival> got;
  for (std::size_t at = 0; at < wire.size(); at += cut) {
    reader.feed(std::string_view(wire).substr(at, cut));
    while (auto arrival = reader.next()) got.push_back(std::move(*arrival));
  }
  REQUIRE(got.size() == 3);
  CHECK(got[0].round == 7U);
  CHECK(got[0].bytes == large.substr(0, kMaxCarriedBytes));
  CHECK_FALSE(got[1].round);
  CHECK(got[1].bytes == "message");
  CHECK(got[2].round == 0x7fffffffU);
  CHECK(got[2].bytes == "vvvvvmore");
}

TEST_CASE("Frames: too much that is carried at once breaks the stream") {
  FrameReader reader;
  std::string bytes;
  append_integer(bytes, static_cast<std::uint32_t>(4 + kMaxCarriedBytes + 1));
  reader.feed(bytes + '\1');
  CHECK_FALSE(reader.next());
  CHECK(reader.is_broken());
}

TEST_CASE("Frames: acknowledgements come between messages, however they are cut") {
  constexpr std::uint64_t kFar = 0xfedcba9876543210U;
  FrameReader reader;
  std::vector<Arrival> got;
  std::size_t size = 0;
  const std::string wire = to_frame("one") + acknowledgement(kFar) + to_frame("");
  for (const char byte : wire) {
    reader.feed(std::string_view(&byte, 1));
    while (auto arrival = reader.next()) {
      size += arrival->size;
      got.push_back(std::move(*arrival));
    }
  }
  REQUIRE(got.size() == 3);
  CHECK_FALSE(got[0].acknowledged);
  CHECK(got[1].acknowledged == kFar);
  CHECK(got[1].bytes.empty());
  CHECK_FALSE(got[2].acknowledged);
  CHECK(size == wire.size());
}

TEST_CASE("Frames: an acknowledgement of another length breaks the stream") {
  for (const std::uint32_t length : {7U, 9U}) {
    FrameReader reader;
    std::string bytes;
    append_integer(bytes, length);
    reader.feed(bytes + '\2' + std::string(20, '\0'));
    CHECK_FALSE(reader.next());
    CHECK(reader.is_broken());
  }
}

TEST_CASE("Frames: a length that no launcher sends breaks the stream for good") {
  FrameReader reader;
  reader.feed("GET / HTTP/1.1\r\n");
  CHECK_FALSE(reader.next());
  CHECK(reader.is_broken());
  reader.feed(to_frame("one"));
  CHECK_FALSE(reader.next());
}

}  // namespace
}  // namespace launcher::control
