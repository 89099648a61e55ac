#include "launcher/os/terminal/terminal_parser.h"

#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\a';

bool is_control(char byte) {
  return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
}

bool is_between(char byte, unsigned char first, unsigned char last) {
  const auto value = static_cast<unsigned char>(byte);
  return value >= first && value <= last;
}

}  // namespace

TerminalParser::Token TerminalParser::finish(Token token) {
  state_ = State::kStart;
  return token;
}

TerminalParser::Token TerminalParser::take(char byte) {
  switch (state_) {
    case State::kStart:
      return in_start(byte);
    case State::kCharacter:
      return in_character(byte);
    case State::kEscape:
      return in_escape(byte);
    case State::kSequence:
      return in_sequence(byte);
    case State::kString:
    case State::kStringEscape:
      return in_string(byte);
  }
  return {};
}

TerminalParser::Token TerminalParser::in_start(char byte) {
  collected_.assign(1, byte);
  if (byte == kEscape) {
    state_ = State::kEscape;
    return {};
  }
  if (is_control(byte)) return {.kind = Kind::kControl, .text = collected_};
  if (utf8_length(byte) == 1) return {.kind = Kind::kCharacter, .text = collected_};
  state_ = State::kCharacter;
  return {};
}

TerminalParser::Token TerminalParser::in_character(char byte) {
  const bool belongs = is_between(byte, 0x80, 0xbf);
  if (belongs) collected_.push_back(byte);
  if (belongs && collected_.size() < static_cast<std::size_t>(utf8_length(collected_.front()))) return {};
  return finish({.kind = Kind::kCharacter, .text = collected_, .again = !belongs});
}

TerminalParser::Token TerminalParser::in_escape(char byte) {
  if (byte == '[' && collected_.size() == 1) {
    collected_.clear();
    state_ = State::kSequence;
    return {};
  }
  if (collected_.size() == 1 && (byte == ']' || byte == 'P' || byte == 'X' || byte == '^' || byte == '_')) {
    state_ = State::kString;
    return {};
  }
  collected_.push_back(byte);
  if (is_between(byte, 0x20, 0x2f) && collected_.size() < kMax) return {};  // more bytes follow, as in ESC ( B
  const bool belongs = is_between(byte, 0x30, 0x7e);
  return finish({.kind = Kind::kOther, .again = !belongs});
}

TerminalParser::Token TerminalParser::in_sequence(char byte) {
  if (is_between(byte, 0x20, 0x3f) && collected_.size() < kMax) {
    collected_.push_back(byte);
    return {};
  }
  if (!is_between(byte, 0x40, 0x7e)) return finish({.kind = Kind::kOther, .again = true});
  return finish({.kind = Kind::kSequence, .parameters = collected_, .final = byte});
}

// Titles, links and similar strings end with BEL or ESC \. None of them contains a line end.
TerminalParser::Token TerminalParser::in_string(char byte) {
  if (byte == '\n' || byte == '\r') return finish({.kind = Kind::kOther, .again = true});
  if (byte == kBell || (state_ == State::kStringEscape && byte == '\\')) return finish({.kind = Kind::kOther});
  if (state_ == State::kStringEscape) {  // another sequence begins
    collected_.assign(1, kEscape);
    state_ = State::kEscape;
    return in_escape(byte);
  }
  collected_.push_back(byte);
  if (collected_.size() >= kMax) return finish({.kind = Kind::kOther});
  if (byte == kEscape) state_ = State::kStringEscape;
  return {};
}

}  // namespace launcher
