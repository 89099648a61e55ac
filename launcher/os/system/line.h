// Writes ddprun's own messages: each is one write to standard error, so lines of several processes do not mix. A reader
// that takes nothing for a second loses the rest: no message is worth a process that stays.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace launcher {

inline constexpr std::chrono::seconds kSilentWait{5};  // shorter waits need no explanation

class Messages {
 public:
  virtual ~Messages() = default;
  // One line, without "ddprun: " and the newline.
  virtual void print(std::string_view line) = 0;
  // Lines as they are.
  virtual void print_lines(std::string_view lines) = 0;
};

// `text` as a message shows it: each control character, of a name perhaps, is a blank; of more than 16 KiB the
// beginning and the end.
std::string message_text(std::string_view text);
// "ddprun: <text>\n", see message_text().
void print_line(std::string_view text);
// As it is, in one write where the kernel allows it.
void print_block(std::string_view text);

// Messages that go straight to standard error.
class StderrMessages : public Messages {
 public:
  void print(std::string_view line) override { print_line(line); }
  void print_lines(std::string_view lines) override { print_block(lines); }
};

}  // namespace launcher
