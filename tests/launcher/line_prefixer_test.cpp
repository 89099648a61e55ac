#include "launcher/terminal/line_prefixer.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(LinePrefixer, EachLineGetsThePrefix) {
  EXPECT_EQ(prefixed("a\nb\n"), "[3] a\n[3] b\n");
  EXPECT_EQ(prefixed("\n\n"), "[3] \n[3] \n");
  EXPECT_EQ(prefixed(""), "");
}

TEST(LinePrefixer, HoweverTheBytesAreCutTheLinesAreTheSame) {
  using std::string_literals::operator""s;
  const std::string bytes = "first\n\n\xff\xfe\0x\nprogress 1\rprogress 2\r\rwindows\r\nlast \r\n\r\nend"s;
  const std::string whole = prefixed(bytes);
  for (std::size_t chunk = 1; chunk < 20; ++chunk) EXPECT_EQ(prefixed(bytes, chunk), whole) << chunk;
}

TEST(LinePrefixer, AnIncompleteLineWaitsAndEndsWithoutANewline) {
  EXPECT_EQ(prefixed("a\npart", 100, /*finish=*/false), "[3] a\n");
  EXPECT_EQ(prefixed("a\npart"), "[3] a\n[3] part");
}

TEST(LinePrefixer, CarriageReturnsEndALineExceptBeforeANewline) {
  EXPECT_EQ(prefixed("10%\r20%\rdone\n"), "[3] 10%\r[3] 20%\r[3] done\n");
  EXPECT_EQ(prefixed("a\r\nb\r\n"), "[3] a\r\n[3] b\r\n");
  EXPECT_EQ(prefixed("\r1%\r2%", 3, /*finish=*/false), "[3] \r[3] 1%\r");
}

TEST(LinePrefixer, OverlongLinesComeInMarkedPieces) {
  const std::string piece(LinePrefixer::kMaxLineBytes, 'x');
  const std::string mark(LinePrefixer::kContinues);
  EXPECT_EQ(prefixed(piece + "yz\n"), "[3] " + piece + mark + "[3] yz\n");
  EXPECT_EQ(prefixed(piece.substr(1) + "\n"), "[3] " + piece.substr(1) + "\n");
  EXPECT_EQ(prefixed(piece + piece + "end"), "[3] " + piece + mark + "[3] " + piece + mark + "[3] end");
}

TEST(LinePrefixer, NeverHoldsMoreThanOneLine) {
  LinePrefixer lines("");
  std::string out;
  const std::string chunk(1000, 'x');
  for (int i = 0; i < 1000; ++i) lines.feed(chunk, out);
  EXPECT_GE(out.size() + LinePrefixer::kMaxLineBytes, 1'000'000U);
}

}  // namespace
}  // namespace launcher
