// Where ddprun's own lines go. While it relays the ranks' output its lines must queue behind theirs.
#pragma once

#include <string_view>

namespace launcher {

class Messages {
 public:
  virtual ~Messages() = default;
  // One line, without "ddprun: " and the newline.
  virtual void say(std::string_view line) = 0;
  // Lines as they are.
  virtual void say_block(std::string_view lines) = 0;
};

}  // namespace launcher
