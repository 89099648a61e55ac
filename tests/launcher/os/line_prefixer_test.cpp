#include "launcher/os/terminal/line_prefixer.h"

#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

// What comes out when `bytes` come in pieces of `chunk`.
std::string prefixed(const std::string& bytes, std::size_t chunk = 1 << 20, bool finish = true) {
  LinePrefixer lines("[3] ");
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += chunk) lines.feed(std::string_view(bytes).substr(i, chunk), out);
  if (finish) lines.finish(out);
  return out;
}

TEST_CASE("LinePrefixer: each line gets the prefix") {
  CHECK(prefixed("a\nb\n") == "[3] a\n[3] b\n");
  CHECK(prefixed("\n\n") == "[3] \n[3] \n");
  CHECK(prefixed("") == "");
}

TEST_CASE("LinePrefixer: however the bytes are cut, the lines are the same") {
  using std::string_literals::operator""s;
  const std::string bytes = "first\n\n\xff\xfe\0x\nprogress 1\rprogress 2\r\rwindows\r\nlast \r\n\r\nend"s;
  const std::string whole = prefixed(bytes);
  for (std::size_t chunk = 1; chunk < 20; ++chunk) {
    CAPTURE(chunk);
    CHECK(prefixed(bytes, chunk) == whole);
  }
}

TEST_CASE("LinePrefixer: an incomplete line waits and ends without a newline") {
  CHECK(prefixed("a\npart", 100, /*finish=*/false) == "[3] a\n");
  CHECK(prefixed("a\npart") == "[3] a\n[3] part");
}

TEST_CASE("LinePrefixer: carriage returns end a line except before a newline") {
  CHECK(prefixed("10%\r20%\rdone\n") == "[3] 10%\r[3] 20%\r[3] done\n");
  CHECK(prefixed("a\r\nb\r\n") == "[3] a\r\n[3] b\r\n");
  CHECK(prefixed("\r1%\r2%", 3, /*finish=*/false) == "[3] \r[3] 1%\r");
}

TEST_CASE("LinePrefixer: overlong lines come in marked pieces") {
  const std::string piece(LinePrefixer::kMaxLineBytes, 'x');
  const std::string mark(LinePrefixer::kContinues);
  CHECK(prefixed(piece + "yz\n") == "[3] " + piece + mark + "[3] yz\n");
  CHECK(prefixed(piece.substr(1) + "\n") == "[3] " + piece.substr(1) + "\n");
  CHECK(prefixed(piece + piece + "end") == "[3] " + piece + mark + "[3] " + piece + mark + "[3] end");
}

TEST_CASE("LinePrefixer: an overlong line is cut between characters") {
  const std::string mark(LinePrefixer::kContinues);
  for (std::size_t missing = 1; missing <= 3; ++missing) {
    const std::string begin(LinePrefixer::kMaxLineBytes - missing, 'x');
    CHECK(prefixed(begin + "😀!\n", 1000) == "[3] " + begin + mark + "[3] 😀!\n");
  }
  const std::string bytes(LinePrefixer::kMaxLineBytes, '\x80');  // no beginning of a character
  CHECK(prefixed(bytes + "\x80\n") == "[3] " + bytes + mark + "[3] \x80\n");
}

TEST_CASE("LinePrefixer: never holds more than one line") {
  LinePrefixer lines("");
  std::string out;
  const std::string chunk(1000, 'x');
  for (int i = 0; i < 1000; ++i) lines.feed(chunk, out);
  CHECK(out.size() + LinePrefixer::kMaxLineBytes >= 1'000'000U);
}

}  // namespace
}  // namespace launcher
