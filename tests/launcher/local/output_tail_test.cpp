#include "launcher/local/output/output_tail.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

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

TEST_CASE("OutputTail: has the last lines in their order") {
  CHECK(tail_of("") == "");
  CHECK(tail_of("a\nb\n") == "a\nb\n");
  CHECK(tail_of("a\nno newline") == "a\nno newline\n");
  CHECK(tail_of(numbered(0, 10'000)) == numbered(9'992, 8));
}

TEST_CASE("OutputTail: however the bytes come, the lines are the same") {
  const std::string bytes = numbered(0, 1'000);
  for (const std::size_t chunk : {1U, 7U, 100U, 2047U, 2048U, 2049U, 5000U}) {
    CAPTURE(chunk);
    CHECK(tail_of(bytes, chunk) == numbered(992, 8));
  }
}

TEST_CASE("OutputTail: one long line is cut at its beginning") {
  const std::string lines = tail_of(std::string(100'000, 'x') + "end\n", 999);
  CHECK(lines.size() <= OutputTail::kBytes + 1);
  CHECK(lines.ends_with("xend\n"));
  // Half a line is left out where whole ones follow.
  CHECK(tail_of(std::string(100'000, 'x') + "\nwhole\n") == "whole\n");
}

TEST_CASE("OutputTail: shows what a terminal would show") {
  CHECK(tail_of("10%\r50%\r100%\nnext\r\n") == "100%\nnext\n");
  CHECK(tail_of("\x1b[1;31mError:\x1b[0m red\n") == "Error: red\n");
  CHECK(tail_of("\n  \n\nx\n\n") == "x\n");
  CHECK(tail_of("cut sequence \x1b[") == "cut sequence \n");
}

TEST_CASE("OutputTail: titles, links and other sequences are not shown either") {
  CHECK(tail_of("\x1b]0;title\aText\n") == "Text\n");
  CHECK(tail_of("see \x1b]8;;https://host/page\x1b\\the page\x1b]8;;\x1b\\ now\n") == "see the page now\n");
  CHECK(tail_of("\x1b(Bplain\x1b=\x1b"
                "c end\n") == "plain end\n");
  CHECK(tail_of("\x1bPstring\x1b\\after\n") == "after\n");
  CHECK(tail_of("columns\tand \xe4\xb8\xad stay\n") == "columns\tand \xe4\xb8\xad stay\n");
}

TEST_CASE("OutputTail: begins with a whole character") {
  for (const std::size_t shift : {0U, 1U, 2U}) {
    CAPTURE(shift);
    std::string line;
    while (line.size() < 3 * OutputTail::kBytes) line += "\xe4\xb8\xad";
    const std::string lines = tail_of(line + std::string(shift, 'x'));
    CHECK(lines.starts_with("\xe4\xb8\xad"));
    CHECK(lines.size() > OutputTail::kBytes - 3);
  }
  // What is not UTF-8 is not taken for half a character for ever.
  CHECK(tail_of(std::string(100'000, '\x80')).size() > OutputTail::kBytes - 4);
}

TEST_CASE("OutputTail: of a file is the same") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "errors.log";
  ddp::test::write_file(path, numbered(0, 10'000));
  CHECK(last_lines_of_file(path) == numbered(9'992, 8));
  ddp::test::write_file(path, "short");
  CHECK(last_lines_of_file(path) == "short\n");
  CHECK(last_lines_of_file(path + ".missing") == "");
  CHECK(last_lines_of_file("/dev/zero") == "");
}

}  // namespace
}  // namespace launcher
