// Splits the output of a program for a terminal into characters, control characters and escape sequences (ECMA-48).
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

class TerminalParser {
 public:
  enum class Kind {
    kNone,       // part of a longer token
    kCharacter,  // in `text`: one UTF-8 character, or invalid bytes that begin like one
    kControl,    // `text`: one control character
    kSequence,   // ESC [ parameters final: `parameters`, `final`
    kOther,      // any other escape sequence, which ddprun ignores
  };
  struct Token {
    Kind kind = Kind::kNone;
    std::string_view text{};        // valid until the next call
    std::string_view parameters{};  // valid until the next call
    char final = 0;
    bool again = false;  // the byte does not belong to this token: pass it again
  };

  Token take(char byte);
  // True when no token is incomplete.
  bool is_at_start() const { return state_ == State::kStart; }

 private:
  enum class State { kStart, kCharacter, kEscape, kSequence, kString, kStringEscape };
  // A longer sequence is not valid. This limits the memory, and how much text a stray ESC can swallow.
  static constexpr std::size_t kMax = 4096;

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
