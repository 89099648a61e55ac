// Writes ddprun's own messages. Each is one write to standard error, so that lines of several processes do not mix. If
// the reader reads nothing for a second, the rest is lost, because a message must not keep a process alive.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace launcher {

inline constexpr std::chrono::seconds kSilentWait{5};  // a shorter wait is not reported

class Messages {
 public:
  virtual ~Messages() = default;
  // Prints one line; "ddprun: " and the newline are added.
  virtual void print(std::string_view line) = 0;
  // Prints lines unchanged.
  virtual void print_lines(std::string_view lines) = 0;
};

// Returns `text` as a message shows it: each control character is replaced by a blank, and of more than 16 KiB only the
// beginning and the end are shown.
std::string message_text(std::string_view text);
// "ddprun: <text>\n", see message_text().
void print_line(std::string_view text);
// Prints the text unchanged, in one write if the kernel allows it.
void print_block(std::string_view text);

// Messages that are written directly to standard error.
class StderrMessages : public Messages {
 public:
  void print(std::string_view line) override { print_line(line); }
  void print_lines(std::string_view lines) override { print_block(lines); }
};

}  // namespace launcher
