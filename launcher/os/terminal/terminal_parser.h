// Takes what a program writes to a terminal apart: characters, control characters, escape sequences (ECMA-48). Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

class TerminalParser {
 public:
  enum class Kind {
    kNone,       // a part of something longer
    kCharacter,  // in `text`: one in UTF-8, or bytes that begin like one and are invalid
    kControl,    // `text`: one control character
    kSequence,   // ESC [ parameters final: `parameters`, `final`
    kOther,      // any other escape sequence, with nothing in it for us
  };
  struct Token {
    Kind kind = Kind::kNone;
    std::string_view text{};        // valid until the next call
    std::string_view parameters{};  // valid until the next call
    char final = 0;
    bool again = false;  // the byte was not a part of this token: give it once more
  };

  Token take(char byte);
  // Not in the middle of anything.
  bool is_at_start() const { return state_ == State::kStart; }

 private:
  enum class State { kStart, kCharacter, kEscape, kSequence, kString, kStringEscape };
  // What is longer than this is not a sequence: it bounds the memory, and how much a stray ESC can swallow.
  static constexpr std::size_t kMost = 4096;

  Token in_start(char byte);
  Token in_character(char byte);
  Token in_escape(char byte);
  Token in_sequence(char byte);
  Token in_string(char byte);
  Token finish(Token token);

  State state_ = State::kStart;
  std::string collected_;
};

}  // namespace launcher
