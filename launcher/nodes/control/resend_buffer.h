// What one end of a session has sent, for as long as the other end may not have received it: after an interruption of
// the network it is sent again on a new connection. A position is a number of bytes since the session began. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace launcher::control {

class ResendBuffer {
 public:
  // Whole frames, which follow all that was added before.
  void add(std::string frames);
  // The next bytes to send; empty when all were sent. They may be the rest of what was added at once.
  std::string_view unsent() const;
  void sent(std::size_t bytes);
  // The other end has received all before `position`, which is forgotten. False when that cannot be.
  [[nodiscard]] bool acknowledge(std::uint64_t position);
  // The same, and all that follows is to be sent again: what was on its way is lost.
  [[nodiscard]] bool rewind(std::uint64_t position);
  // rewind(position) would succeed.
  bool can_rewind(std::uint64_t position) const { return position >= acknowledged_ && position <= sent_; }

  bool is_all_sent() const { return current_ == parts_.size(); }
  // Bytes that the other end has not acknowledged, sent or not.
  std::size_t size() const { return size_; }
  std::uint64_t acknowledged() const { return acknowledged_; }

 private:
  std::deque<std::string> parts_;
  std::size_t current_ = 0;         // the part that is sent next
  std::size_t offset_ = 0;          // in it
  std::uint64_t begin_ = 0;         // the position of the first part
  std::uint64_t sent_ = 0;          // the position of what is sent next
  std::uint64_t acknowledged_ = 0;  // perhaps within the first part
  std::size_t size_ = 0;            // of all parts
};

}  // namespace launcher::control
