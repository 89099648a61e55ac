// What the store says to a connection.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

}  // namespace launcher::store
