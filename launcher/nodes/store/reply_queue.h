// Replies that wait to be sent on one connection. Small ones are packed together, large values are shared with the
// store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace launcher::store {

using ConnectionId = std::uint64_t;
// Values are shared with the replies that carry them, so a slow reader costs no copy.
using Value = std::shared_ptr<const std::string>;

class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void send_u8(ConnectionId to, std::uint8_t value) = 0;
  virtual void send_u32(ConnectionId to, std::uint32_t value) = 0;
  virtual void send_i64(ConnectionId to, std::int64_t value) = 0;
  virtual void send_bytes(ConnectionId to, const Value& value) = 0;  // u64 length, bytes
  virtual void send_raw(ConnectionId to, const Value& bytes) = 0;    // without a length
};

class ReplyQueue {
 public:
  bool is_empty() const { return pieces_.empty(); }
  // The number of bytes that were not sent.
  std::size_t size() const { return size_; }
  // The part of these bytes that is not shared with values of the store.
  std::size_t own_bytes() const { return own_bytes_; }

  // Returns the string to which `size` bytes of replies can be appended.
  std::string& packed(std::size_t size);
  void add(const Value& bytes);
  // Sends as much as the socket accepts without blocking. Returns false when the connection is broken.
  bool send_to(int socket);
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
  std::size_t sent_bytes_of_first_ = 0;
  std::size_t size_ = 0;
  std::size_t own_bytes_ = 0;
};

// Maps connection numbers to reply queues, and records which queues got replies.
class ReplyRouter : public ReplySink {
 public:
  // `replies` must not be moved until remove().
  void add(ConnectionId id, ReplyQueue& replies) { queues_.emplace(id, &replies); }
  void remove(ConnectionId id) { queues_.erase(id); }
  // Returns the connections whose queue was empty before; some may be closed by now.
  std::vector<ConnectionId> take_ready_connections();

  void send_u8(ConnectionId to, std::uint8_t value) override;
  void send_u32(ConnectionId to, std::uint32_t value) override;
  void send_i64(ConnectionId to, std::int64_t value) override;
  void send_bytes(ConnectionId to, const Value& value) override;
  void send_raw(ConnectionId to, const Value& bytes) override;

 private:
  ReplyQueue& replies_of(ConnectionId to);

  std::unordered_map<ConnectionId, ReplyQueue*> queues_;
  std::vector<ConnectionId> ready_connections_;
};

}  // namespace launcher::store
