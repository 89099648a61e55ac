#include "launcher/nodes/store/reply_router.h"

#include <utility>

#include "launcher/nodes/store/wire_format.h"

namespace launcher::store {

std::vector<ConnectionId> ReplyRouter::take_woken() {
  return std::exchange(woken_, {});
}

ReplyQueue& ReplyRouter::replies_of(ConnectionId to) {
  ReplyQueue& replies = *queues_.at(to);
  if (replies.is_empty()) woken_.push_back(to);
  return replies;
}

void ReplyRouter::send_u8(ConnectionId to, std::uint8_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void ReplyRouter::send_u32(ConnectionId to, std::uint32_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void ReplyRouter::send_i64(ConnectionId to, std::int64_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void ReplyRouter::send_bytes(ConnectionId to, const Value& value) {
  send_i64(to, static_cast<std::int64_t>(value->size()));
  send_raw(to, value);
}

void ReplyRouter::send_raw(ConnectionId to, const Value& bytes) {
  replies_of(to).add(bytes);
}

}  // namespace launcher::store
