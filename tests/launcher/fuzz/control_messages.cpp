// What a stranger may send to the port at which launchers talk.
#include "launcher/nodes/control/control_messages.h"

#include "launcher/nodes/control/frames.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace launcher::control;

std::string framed(const Message& message) {
  return to_frame(to_text(message));
}

std::string carried_frame(std::uint32_t round, std::string_view bytes) {
  FrameBuilder carried(round);
  carried.fill(bytes);
  return carried.take_frame();
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const launcher::FailureNotice notice{.node = 1, .exit_status = 44, .text = "rank 3 on host b was killed by SIGSEGV"};
  return {
      framed(Hello{
          .host = "b", .nnodes = 2, .node_rank = 1, .start_failure = launcher::JoinFailure{"no such program", 127}}),
      framed(Challenge{"abc"}) + framed(Answer{"abc", "def", "012", "session", 100, false}) +
          framed(Welcome{"def", "345", 7}),
      framed(NodeDropped{}) + acknowledgement(77) + framed(Acknowledged{1}) + acknowledgement(~std::uint64_t{0}),
      framed(Ready{0}) + framed(Start{0, {1, 2, {4, 8, 2, 6}}, 29500, 0, false}),
      framed(Failed{0, notice}) + framed(FailureQuery{0, notice}) + framed(Report{0, notice, true}),
      framed(Verdict{0, notice}) + framed(Acknowledged{0}) + framed(Ended{0}) + framed(AllEnded{0}),
      framed(Ping{1, std::chrono::seconds(1)}) + framed(Pong{1, 1, std::chrono::seconds(1)}),
      framed(Leaving{{"told to stop", 143}, false}) + framed(Waiting{"a\x1b[2Jb"}) + framed(Refusal{{"no", 125}}),
      carried_frame(3, "what is carried") + framed(Acknowledged{3}) + carried_frame(4, ""),
      "GET / HTTP/1.1\r\n"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  FrameReader reader;
  reader.feed(bytes);
  bool is_accepted = false;
  std::size_t size = 0;
  ResendBuffer sent;
  sent.add(std::string(64, 's'));
  sent.sent(40);
  while (const auto arrival = reader.next()) {
    size += arrival->size;
    require(arrival->size > 0 && size <= bytes.size(), "the sizes of frames are those of what came");
    if (arrival->acknowledged) {
      const bool is_possible = *arrival->acknowledged <= 40;
      require(sent.acknowledge(*arrival->acknowledged) == is_possible, "no more is acknowledged than was sent");
      continue;
    }
    require(arrival->bytes.size() <= (arrival->round ? kMaxCarriedBytes : kMaxMessageBytes),
            "nothing is longer than the limit");
    if (arrival->round) continue;
    const auto message = parse_message(arrival->bytes);
    if (!message) continue;
    is_accepted = true;
    const std::string again = to_text(*message);
    const auto same = parse_message(again);
    require(same && to_text(*same) == again, "a message that was accepted is one that a launcher sends");
    for (const char c : again) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "text is harmless");
  }
  return is_accepted ? Outcome::kAccepted : Outcome::kRefused;
}
