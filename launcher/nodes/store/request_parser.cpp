#include "launcher/nodes/store/request_parser.h"

#include <algorithm>
#include <array>
#include <utility>

namespace launcher::store {
namespace {

// The fields of a request, in the order in which they are sent.
struct Layout {
  std::array<Field, 3> fields{};
  bool is_list = false;  // a count, followed by so many times these fields
};

constexpr std::array<Layout, kOpcodes> kLayouts = {{
    {{Field::kUint32}},                                // kValidate
    {{Field::kKey, Field::kValue}},                    // kSet
    {{Field::kKey, Field::kValue, Field::kValue}},     // kCompareSet
    {{Field::kKey}},                                   // kGet
    {{Field::kKey, Field::kInt64}},                    // kAdd
    {{Field::kKey}, /*is_list=*/true},                 // kCheck
    {{Field::kKey}, /*is_list=*/true},                 // kWait
    {},                                                // kNumKeys
    {{Field::kKey}},                                   // kDelete
    {{Field::kKey, Field::kValue}},                    // kAppend
    {{Field::kKey}, /*is_list=*/true},                 // kMultiGet
    {{Field::kKey, Field::kValue}, /*is_list=*/true},  // kMultiSet
    {},                                                // kCancelWait
    {{Field::kUint32}},                                // kPing
    {{Field::kKey, Field::kValue}},                    // kQueuePush
    {{Field::kKey}},                                   // kQueuePop
    {{Field::kKey}},                                   // kQueueLen
    {},                                                // kListKeys
    {{Field::kKey, Field::kInt64}},                    // kBarrier
}};

}  // namespace

void RequestParser::feed(std::string_view bytes) {
  if (!error_.empty()) return;
  if (position_ == buffer_.size()) {
    buffer_.clear();
    position_ = 0;
  } else if (position_ > (std::size_t{1} << 16) && position_ > buffer_.size() / 2) {
    buffer_.erase(0, position_);
    position_ = 0;
  }
  buffer_.append(bytes);
}

bool RequestParser::fail(std::string text) {
  error_ = std::move(text);
  buffer_.clear();
  buffer_.shrink_to_fit();
  position_ = 0;
  return false;
}

Field RequestParser::field_at(std::size_t index) const {
  const Layout& layout = kLayouts[static_cast<std::size_t>(request_.opcode)];
  if (!layout.is_list) return index < layout.fields.size() ? layout.fields[index] : Field::kEnd;
  if (index == 0) return Field::kCount;
  const std::size_t per_item = layout.fields[1] == Field::kEnd ? 1 : 2;
  return index <= per_item * items_ ? layout.fields[(index - 1) % per_item] : Field::kEnd;
}

bool RequestParser::begin_request() {
  if (unread().empty()) return false;
  const auto opcode = static_cast<std::uint8_t>(buffer_[position_]);
  if (!validated_ && opcode != static_cast<std::uint8_t>(Opcode::kValidate)) {
    return fail("its first bytes are not those of a torch store client");
  }
  if (opcode >= kOpcodes) {
    return fail("unknown operation " + std::to_string(opcode) + " (is its torch newer than this ddprun?)");
  }
  ++position_;
  request_ = Request{};
  request_.opcode = static_cast<Opcode>(opcode);
  field_ = 0;
  items_ = 0;
  request_bytes_ = 0;
  received_bytes_ = 0;
  length_.reset();
  in_request_ = true;
  return true;
}

template <typename Integer>
bool RequestParser::take(Integer& value) {
  if (unread().size() < sizeof value) return false;
  value = read_integer<Integer>(unread());
  position_ += sizeof value;
  return true;
}

bool RequestParser::parse_bytes(std::vector<std::string>& target, std::size_t limit, const char* what) {
  if (!length_) {
    std::uint64_t length = 0;
    if (!take(length)) return false;
    if (length > limit) {
      return fail(std::string("a ") + what + " of " + std::to_string(length) + " bytes; the limit is " +
                  std::to_string(limit));
    }
    request_bytes_ += length;
    if (request_bytes_ > limits_.max_request_bytes) {
      return fail("a request of more than " + std::to_string(limits_.max_request_bytes) + " bytes");
    }
    target.emplace_back();
    received_bytes_ += sizeof(std::string);
    length_ = length;
  }
  // A string grows while its bytes arrive, up to its exact length, so it never has more than twice the received bytes.
  std::string& text = target.back();
  const std::string_view part = unread().substr(0, *length_ - text.size());
  const std::size_t needed = text.size() + part.size();
  if (needed > text.capacity()) {
    // The library decides how reserve() changes a string that already has memory: it may double it.
    std::string larger;
    larger.reserve(std::min<std::size_t>(*length_, 2 * needed));
    larger.append(text);
    text = std::move(larger);
  }
  text.append(part);
  position_ += part.size();
  received_bytes_ += part.size();
  if (text.size() < *length_) return false;
  length_.reset();
  return true;
}

bool RequestParser::parse_field(Field field) {
  switch (field) {
    case Field::kKey:
      return parse_bytes(request_.keys, limits_.max_key_bytes, "key");
    case Field::kValue:
      return parse_bytes(request_.values, limits_.max_value_bytes, "value");
    case Field::kInt64:
      return take(request_.number);
    case Field::kUint32: {
      std::uint32_t bits = 0;
      if (!take(bits)) return false;
      request_.number = bits;
      return true;
    }
    case Field::kCount:
      if (!take(items_)) return false;
      if (items_ > limits_.max_items) {
        return fail("a request with " + std::to_string(items_) + " keys; the limit is " +
                    std::to_string(limits_.max_items));
      }
      return true;
    case Field::kEnd:
      break;
  }
  return false;
}

std::optional<Request> RequestParser::next() {
  if (!error_.empty()) return std::nullopt;
  if (!in_request_ && !begin_request()) return std::nullopt;
  for (Field field = field_at(field_); field != Field::kEnd; field = field_at(field_)) {
    if (!parse_field(field)) return std::nullopt;
    ++field_;
  }
  in_request_ = false;
  if (request_.opcode == Opcode::kValidate) {
    if (request_.number != kValidationNumber) {
      fail("its first bytes are not those of a torch store client");
      return std::nullopt;
    }
    validated_ = true;
  }
  return std::move(request_);
}

}  // namespace launcher::store
