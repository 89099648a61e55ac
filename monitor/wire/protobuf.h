// Writes protocol-buffer messages, and reads their fields from bytes that may be damaged or hostile.
#pragma once

#include <cstdint>
#include <optional>
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

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// One field. Which of the values counts follows from the type.
struct Field {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t integer = 0;      ///< kVarint, and the raw bits of kFixed64 and kFixed32
  std::string_view bytes{};  ///< kBytes: points into the message

  double as_double() const;  ///< of kFixed64
  float as_float() const;    ///< of kFixed32
};

/// Gives the fields one after another. The bytes must outlive the reader and its fields.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : rest_(message) {}

  /// The next field; nullopt at the end. Throws std::runtime_error where the bytes are not a message.
  std::optional<Field> next();

 private:
  uint64_t varint();
  std::string_view take(uint64_t count);

  std::string_view rest_;
};

}  // namespace ddp::wire
