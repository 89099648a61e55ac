#include "launcher/output/output_tail.h"

#include <gtest/gtest.h>

#include <fstream>

namespace launcher {
namespace {

std::string tail_of(const std::string& bytes, std::size_t chunk = 1 << 20) {
  OutputTail tail;
  for (std::size_t i = 0; i < bytes.size(); i += chunk) tail.add(std::string_view(bytes).substr(i, chunk));
  return tail.lines();
}

std::string numbered(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

TEST(OutputTail, TheLastLinesInTheirOrder) {
  EXPECT_EQ(tail_of(""), "");
  EXPECT_EQ(tail_of("a\nb\n"), "a\nb\n");
  EXPECT_EQ(tail_of("a\nno newline"), "a\nno newline\n");
  EXPECT_EQ(tail_of(numbered(0, 10'000)), numbered(9'992, 8));
}

TEST(OutputTail, HoweverTheBytesComeTheLinesAreTheSame) {
  const std::string bytes = numbered(0, 1'000);
  for (const std::size_t chunk : {1U, 7U, 100U, 2047U, 2048U, 2049U, 5000U}) {
    EXPECT_EQ(tail_of(bytes, chunk), numbered(992, 8)) << chunk;
  }
}

TEST(OutputTail, OneLongLineIsCutAtItsBeginning) {
  const std::string lines = tail_of(std::string(100'000, 'x') + "end\n", 999);
  EXPECT_LE(lines.size(), OutputTail::kBytes + 1);
  EXPECT_TRUE(lines.ends_with("xend\n"));
  // Half a line is left out where whole ones follow.
  EXPECT_EQ(tail_of(std::string(100'000, 'x') + "\nwhole\n"), "whole\n");
}

TEST(OutputTail, ShowsWhatATerminalWouldShow) {
  EXPECT_EQ(tail_of("10%\r50%\r100%\nnext\r\n"), "100%\nnext\n");
  EXPECT_EQ(tail_of("\x1b[1;31mError:\x1b[0m red\n"), "Error: red\n");
  EXPECT_EQ(tail_of("\n  \n\nx\n\n"), "x\n");
  EXPECT_EQ(tail_of("cut sequence \x1b["), "cut sequence \n");
}

TEST(OutputTail, OfAFileTheSame) {
  const std::string path = testing::TempDir() + "output_tail_test.log";
  std::ofstream(path) << numbered(0, 10'000);
  EXPECT_EQ(last_lines_of_file(path), numbered(9'992, 8));
  std::ofstream(path) << "short";
  EXPECT_EQ(last_lines_of_file(path), "short\n");
  EXPECT_EQ(last_lines_of_file(path + ".missing"), "");
  EXPECT_EQ(last_lines_of_file("/dev/zero"), "");
}

}  // namespace
}  // namespace launcher
