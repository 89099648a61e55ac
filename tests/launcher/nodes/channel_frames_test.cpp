#include <string>
#include <vector>

#include "launcher/nodes/store/channel_link.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

TEST_CASE("FrameReader: frames come out as they went in, however they are cut") {
  std::string bytes;
  append_frame(bytes, FrameKind::kOpen, 7, {});
  append_frame(bytes, FrameKind::kData, 7, std::string("a\0b", 3));
  append_frame(bytes, FrameKind::kTaken, 0xfffffffe, {}, 70000);
  append_frame(bytes, FrameKind::kData, 8, std::string(kMaxFrameBytes, 'x'));
  append_frame(bytes, FrameKind::kClose, 7, {});
  const std::size_t step = GENERATE(1, 3, 1000, 1 << 20);
  CAPTURE(step);

  FrameReader reader;
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < bytes.size(); i += step) {
    reader.feed(std::string_view(bytes).substr(i, step));
    while (auto frame = reader.next()) frames.push_back(*frame);
  }
  REQUIRE(frames.size() == 5);
  CHECK_FALSE(reader.is_broken());
  CHECK(frames[0].kind == FrameKind::kOpen);
  CHECK(frames[0].channel == 7);
  CHECK(frames[1].bytes == std::string("a\0b", 3));
  CHECK(frames[2].channel == 0xfffffffe);
  CHECK(frames[2].number == 70000);
  CHECK(frames[3].bytes.size() == kMaxFrameBytes);
  CHECK(frames[4].kind == FrameKind::kClose);
}

TEST_CASE("FrameReader: what no proxy sends ends the stream for good") {
  std::string bytes;
  SECTION("an unknown kind") {
    append_frame(bytes, static_cast<FrameKind>(4), 1, {});
  }
  SECTION("a frame that is too long") {
    append_frame(bytes, FrameKind::kData, 1, std::string(kMaxFrameBytes + 1, 'x'));
  }
  SECTION("a number that is cut") {
    const std::size_t begin = begin_frame(bytes, static_cast<std::uint8_t>(FrameKind::kTaken));
    bytes += std::string(7, '\1');
    end_frame(bytes, begin);
  }
  SECTION("a number where none belongs") {
    append_frame(bytes, FrameKind::kClose, 1, std::string(4, '\1'));
  }
  FrameReader reader;
  reader.feed(bytes);
  CHECK_FALSE(reader.next());
  CHECK(reader.is_broken());
  std::string good;
  append_frame(good, FrameKind::kOpen, 1, {});
  reader.feed(good);
  CHECK_FALSE(reader.next());
}

TEST_CASE("SendWindow, ReceiveWindow: a sender that keeps to its room is never refused, and one that does not is") {
  SendWindow sender;
  ReceiveWindow receiver;
  std::size_t total = 0;
  while (total < 10 * kChannelWindow) {
    const std::size_t part = std::min<std::size_t>(sender.room(), 10007);
    REQUIRE(part > 0);
    sender.sent(part);
    REQUIRE(receiver.received(part));
    total += part;
    if (receiver.held() < kChannelWindow / 2) continue;  // a reader that takes much at once
    receiver.taken(receiver.held());
    const std::uint32_t announced = receiver.announcement();
    REQUIRE(announced > 0);
    REQUIRE(sender.taken(announced));
  }
  CHECK_FALSE(sender.taken(kChannelWindow + 1));
  CHECK_FALSE(receiver.received(kChannelWindow + 1));
}

}  // namespace
}  // namespace launcher::store
