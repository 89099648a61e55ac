#include "launcher/os/terminal/terminal_parser.h"

#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using ddp::test::ElementsAre;
using TokenKind = TerminalParser::Kind;

// Tokens as words: c:x a character, k:07 a control character, s:31m a sequence, o any other one.
class WrittenWords {
 public:
  WrittenWords& take(std::string_view bytes) {
    for (const char byte : bytes) {
      int rounds = 0;
      for (bool again = true; again;) {
        REQUIRE(++rounds <= 2);  // a byte that is given once more is taken
        const TerminalParser::Token token = parser_.take(byte);
        again = token.again;
        add(token);
      }
    }
    return *this;
  }
  const std::vector<std::string>& words() const { return words_; }
  bool is_at_start() const { return parser_.is_at_start(); }

 private:
  void add(const TerminalParser::Token& token) {
    if (token.kind == TokenKind::kCharacter) words_.push_back("c:" + std::string(token.text));
    if (token.kind == TokenKind::kControl) words_.push_back("k:" + std::to_string(static_cast<int>(token.text.at(0))));
    if (token.kind == TokenKind::kSequence) words_.push_back("s:" + std::string(token.parameters) + token.final);
    if (token.kind == TokenKind::kOther) words_.emplace_back("o");
  }
  TerminalParser parser_;
  std::vector<std::string> words_;
};

std::vector<std::string> words_of(std::string_view bytes) {
  return WrittenWords().take(bytes).words();
}

TEST_CASE("TerminalParser: characters are whole, however many bytes they have") {
  CHECK_THAT(words_of("a\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80z"),
             ElementsAre("c:a", "c:\xc3\xa4", "c:\xe4\xb8\xad", "c:\xf0\x9f\x98\x80", "c:z"));
}

TEST_CASE("TerminalParser: each control character is one, zero too") {
  for (int number = 0; number < 0x20; ++number) {
    if (number == 0x1b) continue;
    const char byte = static_cast<char>(number);
    CHECK_THAT(words_of(std::string_view(&byte, 1)), ElementsAre("k:" + std::to_string(number)));
  }
  CHECK_THAT(words_of("\x7f"), ElementsAre("k:127"));
}

TEST_CASE("TerminalParser: half a character keeps nothing of what follows") {
  CHECK_THAT(words_of("\xe4\xb8x"), ElementsAre("c:\xe4\xb8", "c:x"));
  CHECK_THAT(words_of("\xe4\n"), ElementsAre("c:\xe4", "k:10"));
  CHECK_THAT(words_of("\xe4\xe4\xb8\xad"), ElementsAre("c:\xe4", "c:\xe4\xb8\xad"));
  CHECK_THAT(words_of("\xf0\x9f\x1b[31m"), ElementsAre("c:\xf0\x9f", "s:31m"));
}

TEST_CASE("TerminalParser: bytes with which nothing begins are alone") {
  CHECK_THAT(words_of("\x80\xbf\xc0\xc1\xf5\xff"),
             ElementsAre("c:\x80", "c:\xbf", "c:\xc0", "c:\xc1", "c:\xf5", "c:\xff"));
}

TEST_CASE("TerminalParser: what only looks like a character ends with its length") {
  // Half of a pair, too long a form, beyond the last one.
  for (const std::string bytes : {"\xed\xa0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80"}) {
    CAPTURE(bytes);
    WrittenWords words;
    words.take(bytes);
    CHECK(words.is_at_start());
    CHECK(words.take("x").words().back() == "c:x");
    CHECK(words.words().size() == 2);
  }
}

TEST_CASE("TerminalParser: sequences have their parameters and their last byte") {
  CHECK_THAT(words_of("\x1b[m\x1b[1;31m\x1b[2K\x1b[?25l\x1b[38:2::1:2:3m\x1b[ q\x1b[@\x1b[~"),
             ElementsAre("s:m", "s:1;31m", "s:2K", "s:?25l", "s:38:2::1:2:3m", "s: q", "s:@", "s:~"));
}

TEST_CASE("TerminalParser: a sequence that breaks off gives back what broke it") {
  CHECK_THAT(words_of("\x1b[3\n"), ElementsAre("o", "k:10"));
  CHECK_THAT(words_of("\x1b[3\x1b[4m"), ElementsAre("o", "s:4m"));
  CHECK_THAT(words_of("\x1b[\xc3\xa4"), ElementsAre("o", "c:\xc3\xa4"));
  CHECK_THAT(words_of("\x1b\x1b\x1b[m"), ElementsAre("o", "o", "s:m"));
  CHECK_THAT(words_of("\x1b\n"), ElementsAre("o", "k:10"));
  CHECK_THAT(words_of("\x1b(\x1b[m"), ElementsAre("o", "s:m"));
}

TEST_CASE("TerminalParser: other sequences end with themselves") {
  CHECK_THAT(words_of("\x1b(Bx"), ElementsAre("o", "c:x"));
  CHECK_THAT(words_of("\x1b"
                      "7\x1b"
                      "8\x1b=\x1b>\x1b"
                      "cx"),
             ElementsAre("o", "o", "o", "o", "o", "c:x"));
  CHECK_THAT(words_of("\x1b #8x"), ElementsAre("o", "c:x"));
}

TEST_CASE("TerminalParser: titles, links and device strings end with their end or with the line") {
  CHECK_THAT(words_of("\x1b]0;title\ax"), ElementsAre("o", "c:x"));
  CHECK_THAT(words_of("\x1b]8;;https://host\x1b\\x"), ElementsAre("o", "c:x"));
  CHECK_THAT(words_of("\x1b]0;\xe4\xb8\xad\x1b\\x"), ElementsAre("o", "c:x"));
  for (const std::string begin : {"P", "X", "^", "_", "]"}) {
    CAPTURE(begin);
    CHECK_THAT(words_of("\x1b" + begin + "text\x1b\\x"), ElementsAre("o", "c:x"));
    CHECK_THAT(words_of("\x1b" + begin + "text\nx"), ElementsAre("o", "k:10", "c:x"));
    CHECK_THAT(words_of("\x1b" + begin + "text\rx"), ElementsAre("o", "k:13", "c:x"));
  }
}

TEST_CASE("TerminalParser: an escape in a string that does not end it begins another sequence") {
  const auto words = words_of("\x1b]0;title\x1b[31mx");
  CHECK(words.back() == "c:x");
  CHECK(words[words.size() - 2] == "s:31m");
  CHECK(words_of("\x1b]0;a\x1b]0;b\ax").back() == "c:x");
  CHECK(words_of("\x1b]0;a\x1b\x1b\\x").back() == "c:x");
}

TEST_CASE("TerminalParser: a stray beginning swallows some thousand bytes at most") {
  for (const std::string begin : {"\x1b[", "\x1b]", "\x1bP", "\x1b ", "\x1b]\x1b"}) {
    const std::string fill = begin == "\x1b[" ? "1" : begin == "\x1b " ? " " : "y";
    CAPTURE(begin);
    WrittenWords words;
    words.take(begin);
    for (int i = 0; i < 5'000; ++i) words.take(fill);
    words.take("\xe4\xb8\xad");
    CHECK(words.is_at_start());
    CHECK(words.words().back() == "c:\xe4\xb8\xad");
  }
}

TEST_CASE("TerminalParser: what is outside sequences is all there and in order, whatever the bytes are") {
  constexpr std::string_view kBytes = "ab01;:?[]()P\\ \x1b\x1b\x1b\a\n\r\x7f\x80\xa0\xbf\xc3\xe4\xed\xf0\xf4\xff\0";
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string bytes;
    for (int i = 0; i < 300; ++i) bytes.push_back(kBytes[random() % kBytes.size()]);
    TerminalParser parser;
    std::string seen;
    std::size_t pieces = 0;
    for (const char byte : bytes) {
      for (bool again = true; again;) {
        const TerminalParser::Token token = parser.take(byte);
        again = token.again;
        seen.append(token.text);
        REQUIRE(token.text.size() <= 4);
        REQUIRE((token.kind == TokenKind::kCharacter || token.kind == TokenKind::kControl) == !token.text.empty());
        ++pieces;
      }
    }
    REQUIRE(pieces <= 2 * bytes.size());
    // `seen` is `bytes` with parts left out.
    std::size_t at = 0;
    for (const char byte : seen) {
      at = bytes.find(byte, at);
      REQUIRE(at != std::string::npos);
      ++at;
    }
    // A line end is never part of a sequence.
    REQUIRE(std::count(seen.begin(), seen.end(), '\n') == std::count(bytes.begin(), bytes.end(), '\n'));
  }
}

}  // namespace
}  // namespace launcher
