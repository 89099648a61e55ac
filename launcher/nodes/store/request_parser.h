// Server side of the wire protocol of c10d's TCPStore (base/store_protocol.h): parses the bytes of one connection into
// requests. It is incremental and strict: it stores only received bytes, never reserves memory for an announced length,
// and stops at the first malformed byte. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/store_protocol.h"

namespace launcher::store {

using ddp::detail::append_integer;
using ddp::detail::read_integer;
using ddp::detail::store::append_text;
using ddp::detail::store::kValidationNumber;
using ddp::detail::store::Opcode;

inline constexpr std::size_t kOpcodes = 19;
inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 20;

struct Request {
  Opcode opcode{};
  std::vector<std::string> keys;
  std::vector<std::string> values;  // for kCompareSet: expected, desired
  std::int64_t number = 0;          // kAdd: the increment; kPing: the nonce; kBarrier: the world size
};

struct ParserLimits {
  std::size_t max_key_bytes = std::size_t{64} << 10;
  std::size_t max_value_bytes = kMaxValueBytes;
  std::size_t max_request_bytes = std::size_t{80} << 20;  // all keys and values of one request
  std::uint64_t max_items = 128 << 10;                    // keys of one request
};

enum class Field : std::uint8_t { kEnd, kKey, kValue, kInt64, kUint32, kCount };

class RequestParser {
 public:
  explicit RequestParser(ParserLimits limits = {}) : limits_(limits) {}

  void feed(std::string_view bytes);
  // Returns the next complete request; nothing when more bytes are needed or after an error. The first request must be
  // kValidate.
  std::optional<Request> next();
  // What was wrong with the bytes; empty while all is well.
  const std::string& error() const { return error_; }
  // The approximate memory of incomplete requests.
  std::size_t held_bytes() const { return buffer_.capacity() + (in_request_ ? received_bytes_ : 0); }

 private:
  Field field_at(std::size_t index) const;
  bool parse_field(Field field);
  bool parse_bytes(std::vector<std::string>& target, std::size_t limit, const char* what);
  template <typename Integer>
  bool take(Integer& value);
  std::string_view unread() const { return std::string_view(buffer_).substr(position_); }
  bool fail(std::string text);
  bool begin_request();

  ParserLimits limits_;
  std::string buffer_;
  std::size_t position_ = 0;
  std::string error_;
  bool validated_ = false;
  bool in_request_ = false;
  Request request_;
  std::size_t field_ = 0;                // fields that are complete
  std::uint64_t items_ = 1;              // keys, or key-value pairs
  std::optional<std::uint64_t> length_;  // of the string being read
  std::size_t request_bytes_ = 0;        // according to the announced lengths
  std::size_t received_bytes_ = 0;       // includes the overhead of strings
};

}  // namespace launcher::store
