// Encodes protocol-buffer messages, and decodes their fields from bytes that may be damaged or malicious.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::wire {

/// Encodes the fields of one message. To nest a message, pass the str() of another writer to bytes().
class MessageWriter {
 public:
  MessageWriter& integer(uint32_t field, int64_t value);  ///< for int32, int64, bool and enum
  MessageWriter& real(uint32_t field, double value);
  MessageWriter& real32(uint32_t field, float value);
  MessageWriter& bytes(uint32_t field, std::string_view value);  ///< for string, bytes and nested messages
  MessageWriter& packed(uint32_t field, std::span<const double> values);

  const std::string& str() const { return encoded_; }

 private:
  std::string encoded_;
};

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// One field. Its type determines which member holds the value.
struct Field {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t integer = 0;      ///< for kVarint; for kFixed64 and kFixed32, the raw bits
  std::string_view bytes{};  ///< for kBytes; points into the message

  double as_double() const;  ///< for kFixed64
  float as_float() const;    ///< for kFixed32
};

/// Returns the fields one after another. The bytes must outlive the reader and its fields.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : rest_(message) {}

  /// Returns the next field; nullopt at the end. Throws std::runtime_error if the bytes are not a message.
  std::optional<Field> next();

 private:
  uint64_t varint();
  std::string_view take(uint64_t count);

  std::string_view rest_;
};

}  // namespace ddp::wire
