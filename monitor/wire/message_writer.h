// Writes protocol-buffer messages field by field (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ddp::wire {

/// Collects the fields of one message. A nested message is a bytes() field with another writer's str().
class MessageWriter {
 public:
  MessageWriter& integer(uint32_t field, int64_t value);  ///< int32, int64, bool and enum
  MessageWriter& real(uint32_t field, double value);
  MessageWriter& real32(uint32_t field, float value);
  MessageWriter& bytes(uint32_t field, std::string_view value);  ///< string, bytes and nested messages
  MessageWriter& packed(uint32_t field, std::span<const double> values);

  const std::string& str() const { return encoded_; }

 private:
  std::string encoded_;
};

}  // namespace ddp::wire
