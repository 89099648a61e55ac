// From a connection's number to where its replies queue up, and who got some since they were last sent.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "launcher/nodes/store/reply_queue.h"
#include "launcher/nodes/store/reply_sink.h"

namespace launcher::store {

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
