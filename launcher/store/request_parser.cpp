#include "launcher/store/request_parser.h"

#include <algorithm>
#include <utility>

#include "launcher/store/wire_format.h"

namespace launcher::store {

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

// The fields of each request, in the order of the wire. Lists begin with their count.
RequestParser::Field RequestParser::field_at(std::size_t index) const {
  const auto one_of = [&](std::initializer_list<Field> fields) {
    return index < fields.size() ? *(fields.begin() + index) : Field::kEnd;
  };
  switch (request_.opcode) {
    case Opcode::kValidate:
    case Opcode::kPing:
      return one_of({Field::kUint32});
    case Opcode::kSet:
    case Opcode::kAppend:
    case Opcode::kQueuePush:
      return one_of({Field::kKey, Field::kValue});
    case Opcode::kCompareSet:
      return one_of({Field::kKey, Field::kValue, Field::kValue});
    case Opcode::kGet:
    case Opcode::kDelete:
    case Opcode::kQueuePop:
    case Opcode::kQueueLen:
      return one_of({Field::kKey});
    case Opcode::kAdd:
    case Opcode::kBarrier:
      return one_of({Field::kKey, Field::kInt64});
    case Opcode::kCheck:
    case Opcode::kWait:
    case Opcode::kMultiGet:
      if (index == 0) return Field::kCount;
      return index <= items_ ? Field::kKey : Field::kEnd;
    case Opcode::kMultiSet:
      if (index == 0) return Field::kCount;
      if (index > 2 * items_) return Field::kEnd;
      return index % 2 == 1 ? Field::kKey : Field::kValue;
    case Opcode::kNumKeys:
    case Opcode::kCancelWait:
    case Opcode::kListKeys:
      return Field::kEnd;
  }
  return Field::kEnd;
}

bool RequestParser::begin_request() {
  if (unread().empty()) return false;
  const auto opcode = static_cast<std::uint8_t>(buffer_[position_]);
  if (!validated_ && opcode != static_cast<std::uint8_t>(Opcode::kValidate)) {
    return fail("it does not begin as a torch store client does");
  }
  if (opcode > static_cast<std::uint8_t>(Opcode::kBarrier)) {
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
  // A string grows as its bytes come, up to its exact length: never to more than twice what was received.
  std::string& text = target.back();
  const std::string_view part = unread().substr(0, *length_ - text.size());
  const std::size_t needed = text.size() + part.size();
  if (needed > text.capacity()) {
    std::string larger;  // what reserve() does to a string that has room already is up to the library: it may double it
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
      fail("it does not begin as a torch store client does");
      return std::nullopt;
    }
    validated_ = true;
  }
  return std::move(request_);
}

}  // namespace launcher::store
