// Replies on their way to one connection: small ones are packed together, large values are shared with the store.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "launcher/nodes/store/reply_sink.h"

namespace launcher::store {

class ReplyQueue {
 public:
  bool is_empty() const { return pieces_.empty(); }
  // What has not been sent.
  std::size_t size() const { return size_; }
  // What of it no value shares.
  std::size_t own_bytes() const { return own_bytes_; }

  // Where to append `size` bytes of replies.
  std::string& packed(std::size_t size);
  void add(const Value& bytes);
  // Sends what the socket takes without blocking. False when the connection is broken.
  bool send_to(int socket);
  // The next bytes, at most `size`, which count as sent.
  std::string take(std::size_t size);

 private:
  struct Piece {
    Value shared;  // null: `own` holds the bytes
    std::string own;
    std::string_view bytes() const { return shared ? std::string_view(*shared) : std::string_view(own); }
  };
  void drop_sent(std::size_t count);
  void forget_sent();

  std::deque<Piece> pieces_;
  std::size_t sent_of_first_ = 0;
  std::size_t size_ = 0;
  std::size_t own_bytes_ = 0;
};

}  // namespace launcher::store
