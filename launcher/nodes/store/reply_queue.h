// Replies on their way to one connection: small ones are packed together, large values are shared with the store.
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
  virtual void send_raw(ConnectionId to, const Value& bytes) = 0;    // as they are
};

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

// From a connection's number to where its replies queue up, and who got some since they were last sent.
class ReplyRouter : public ReplySink {
 public:
  // `replies` must stay where it is until remove().
  void add(ConnectionId id, ReplyQueue& replies) { queues_.emplace(id, &replies); }
  void remove(ConnectionId id) { queues_.erase(id); }
  // Those whose queue was empty before; some may be gone.
  std::vector<ConnectionId> take_woken();

  void send_u8(ConnectionId to, std::uint8_t value) override;
  void send_u32(ConnectionId to, std::uint32_t value) override;
  void send_i64(ConnectionId to, std::int64_t value) override;
  void send_bytes(ConnectionId to, const Value& value) override;
  void send_raw(ConnectionId to, const Value& bytes) override;

 private:
  ReplyQueue& replies_of(ConnectionId to);

  std::unordered_map<ConnectionId, ReplyQueue*> queues_;
  std::vector<ConnectionId> woken_;
};

}  // namespace launcher::store
