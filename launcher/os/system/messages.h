// Where ddprun's own lines go. While it relays the ranks' output its lines must queue after theirs.
#pragma once

#include <chrono>
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

}  // namespace launcher
