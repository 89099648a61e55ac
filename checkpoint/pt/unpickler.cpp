#include "checkpoint/pt/unpickler.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/utf8.h"
#include "checkpoint/pt/memo.h"
#include "checkpoint/pt/opcodes.h"
#include "checkpoint/pt/rebuild.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

// The most memory of the values per byte of the pickle: a tensor of four dimensions needs 180 bytes of memory, and at
// least 16 bytes in the pickle. A small pickle may use kBaseSize in any case.
constexpr size_t kMaxExpansion = 32;
constexpr size_t kBaseSize = size_t{1} << 16;

class Machine {
 public:
  explicit Machine(std::string_view bytes, const Globals* globals = nullptr) : bytes_(bytes), globals_(globals) {}

  std::unique_ptr<Pickle> run() {
    try {
      while (!step(static_cast<Op>(read_byte()))) {
        if (pickle_->size() > kMaxExpansion * position_ + kBaseSize) {
          fail("its values contain each other so often that they need more memory than a file of this size can hold");
        }
      }
      if (stack_.size() != 1 || !marks_.empty()) fail("it ends with values left over");
    } catch (const FormatError& error) {
      throw FormatError("the pickle is refused at byte " + std::to_string(opcode_position_) + ": " + error.what());
    }
    pickle_->root = stack_.back();
    return std::move(pickle_);
  }

  /// Bytes that were read.
  size_t position() const { return position_; }

 private:
  [[noreturn]] static void fail(const std::string& message) { throw FormatError(message); }

  // One opcode; true when it was the last.
  bool step(Op op) {
    opcode_position_ = position_ - 1;
    switch (op) {
      case Op::kProto:
        if (read_byte() > 5) fail("its protocol is unknown");
        return false;
      case Op::kStop:
        return true;
      case Op::kNone:
        return push(Value());
      case Op::kNewTrue:
        return push(Value(true));
      case Op::kNewFalse:
        return push(Value(false));
      case Op::kBinInt:
        return push(Value(int64_t{read<int32_t>()}));
      case Op::kBinInt1:
        return push(Value(int64_t{read_byte()}));
      case Op::kBinInt2:
        return push(Value(int64_t{read<uint16_t>()}));
      case Op::kLong1:
        return push(read_long(read_byte()));
      case Op::kLong4:
        return push(read_long(read<uint32_t>()));
      case Op::kInt:
        return push(read_decimal());
      case Op::kBinFloat:
        return push(Value(read_float()));
      case Op::kEmptyList:
      case Op::kEmptySet:
        return push(pickle_->container(Kind::kList));
      case Op::kEmptyTuple:
        return push(pickle_->container(Kind::kTuple));
      case Op::kEmptyDict:
        return push(pickle_->container(Kind::kDict));
      case Op::kMark:
        marks_.push_back(stack_.size());
        return false;
      case Op::kFrame:
        read<uint64_t>();  // where the next frame begins, which only readers of streams need
        return false;
      default:
        return step_text(op);
    }
  }

  // Texts and bytes, each with its length before it.
  bool step_text(Op op) {
    switch (op) {
      case Op::kShortBinUnicode:
        return push(pickle_->text(std::string(take(read_byte()))));
      case Op::kBinUnicode:
        return push(pickle_->text(std::string(take(read<uint32_t>()))));
      case Op::kBinUnicode8:
        return push(pickle_->text(std::string(take(read<uint64_t>()))));
      case Op::kShortBinString:
        return push(python2_text(take(read_byte())));
      case Op::kBinString:
        return push(python2_text(take(read<uint32_t>())));
      case Op::kShortBinBytes:
        return push(pickle_->bytes(std::string(take(read_byte()))));
      case Op::kBinBytes:
        return push(pickle_->bytes(std::string(take(read<uint32_t>()))));
      case Op::kBinBytes8:
      case Op::kByteArray8:
        return push(pickle_->bytes(std::string(take(read<uint64_t>()))));
      default:
        return step_combining(op);
    }
  }

  // Opcodes that use what is on the stack.
  bool step_combining(Op op) {
    switch (op) {
      case Op::kTuple:
        return push(pickle_->container(Kind::kTuple, pop_to_mark()));
      case Op::kTuple1:
        return push(pickle_->container(Kind::kTuple, pop(1)));
      case Op::kTuple2:
        return push(pickle_->container(Kind::kTuple, pop(2)));
      case Op::kTuple3:
        return push(pickle_->container(Kind::kTuple, pop(3)));
      case Op::kAppend:
        return append(pop(1));
      case Op::kAppends:
      case Op::kAddItems:
        return append(pop_to_mark());
      case Op::kSetItem:
        return set_items(pop(2));
      case Op::kSetItems:
        return set_items(pop_to_mark());
      case Op::kFrozenSet:
        return push(pickle_->container(Kind::kTuple, pop_to_mark()));
      default:
        return step_memo(op);
    }
  }

  bool step_memo(Op op) {
    switch (op) {
      case Op::kBinPut:
        memo_.put(read_byte(), top());
        return false;
      case Op::kLongBinPut:
        memo_.put(read<uint32_t>(), top());
        return false;
      case Op::kMemoize:
        memo_.append(top());
        return false;
      case Op::kBinGet:
        return get(read_byte());
      case Op::kLongBinGet:
        return get(read<uint32_t>());
      default:
        return step_object(op);
    }
  }

  bool step_object(Op op) {
    switch (op) {
      case Op::kGlobal: {
        const auto module = read_line();
        return push(global(module, read_line()));
      }
      case Op::kStackGlobal: {
        const auto parts = pop(2);
        if (!parts[0].is(Kind::kText) || !parts[1].is(Kind::kText)) fail("it asks for a name that is not text");
        return push(global(parts[0].text(), parts[1].text()));
      }
      case Op::kReduce: {
        const auto parts = pop(2);
        return push(call(parts[0], parts[1]));
      }
      case Op::kNewObj: {
        const auto parts = pop(2);
        return push(new_object(parts[0], parts[1]));
      }
      case Op::kNewObjEx: {  // with arguments that have names
        const auto parts = pop(3);
        return push(new_object(parts[0], parts[1]));
      }
      case Op::kBuild:
        return build();
      case Op::kBinPersId:
        return push(load_storage(*pickle_, pop(1).front()));
      default: {
        fail("the opcode " + std::to_string(static_cast<int>(op)) + " is not allowed");
      }
    }
  }

  // --- bytes

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - position_) fail("it is truncated");
    const auto piece = bytes_.substr(position_, size);
    position_ += size;
    return piece;
  }

  uint8_t read_byte() { return static_cast<uint8_t>(take(1).front()); }

  template <typename Number>
  Number read() {
    Number value{};
    std::memcpy(&value, take(sizeof(Number)).data(), sizeof(Number));
    return value;
  }

  double read_float() { return std::bit_cast<double>(__builtin_bswap64(read<uint64_t>())); }

  Value read_long(size_t size) {
    const auto digits = take(size);
    if (digits.size() > sizeof(int64_t)) return pickle_->other_value("an integer of more than 64 bits");
    if (digits.empty()) return Value(int64_t{0});
    int64_t value = static_cast<signed char>(digits.back()) < 0 ? -1 : 0;
    std::memcpy(&value, digits.data(), digits.size());
    return Value(value);
  }

  // Python 2's texts are bytes, which torch.load takes for UTF-8.
  Value python2_text(std::string_view bytes) {
    for (auto rest = bytes; !rest.empty();) {
      const auto length = detail::utf8_length(rest);
      if (length == 0) return pickle_->bytes(std::string(bytes));
      rest.remove_prefix(length);
    }
    return pickle_->text(std::string(bytes));
  }

  // An integer in decimal digits: Python 2 writes it so if it fits in 64 bits but not in 32. Python 2's booleans are
  // "00" and "01".
  Value read_decimal() {
    const auto digits = read_line();
    if (digits == "00" || digits == "01") return Value(digits == "01");
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) fail("it has an invalid whole number");
    return Value(value);
  }

  std::string_view read_line() {
    const auto end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("it is truncated");
    const auto line = take(end - position_);
    take(1);
    return line;
  }

  // --- stack

  bool push(Value value) {
    stack_.push_back(value);
    return false;
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::vector<Value> pop(size_t count) {
    if (stack_.size() - floor() < count) fail("it takes more values than there are");
    std::vector<Value> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    auto values = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  const Value& top() const {
    if (stack_.size() == floor()) fail("it takes more values than there are");
    return stack_.back();
  }

  bool append(const std::vector<Value>& values) {
    if (top().is(Kind::kForeign)) return false;
    if (!top().is(Kind::kList)) fail("it appends to something that is not a list");
    auto& items = top().items();
    items.insert(items.end(), values.begin(), values.end());
    return false;
  }

  bool set_items(const std::vector<Value>& values) {
    if (top().is(Kind::kForeign)) return false;
    if (!top().is(Kind::kDict)) fail("it sets an item of something that is not a dict");
    if (values.size() % 2 != 0) fail("a dict has a key without a value");
    for (size_t i = 0; i < values.size(); i += 2) {
      if (!values[i].is_hashable()) fail("a dict has a key that is a list or a dict");
    }
    auto& items = top().items();
    items.insert(items.end(), values.begin(), values.end());
    return false;
  }

  bool get(uint64_t number) {
    const auto* value = memo_.get(number);
    if (value == nullptr) fail("it refers to a value that it has not stored");
    return push(*value);
  }

  // --- names and objects

  Value global(std::string_view module, std::string_view name) {
    auto full = std::string(module) + "." + std::string(name);
    if (globals_ != nullptr) globals_->check(full);
    return pickle_->global(std::move(full));
  }

  Value call(const Value& function, const Value& arguments) {
    if (function.is(Kind::kForeign)) return function;
    if (!function.is(Kind::kGlobal)) fail("it calls something that is not a function");
    if (globals_ != nullptr) return globals_->call(*pickle_, function.text(), arguments);
    return call_global(*pickle_, function.text(), arguments);
  }

  Value new_object(const Value& type, const Value& arguments) {
    if (type.is(Kind::kForeign)) return type;
    if (!type.is(Kind::kGlobal)) fail("it makes an object of something that is not a class");
    if (globals_ != nullptr) return globals_->make(*pickle_, type.text(), arguments);
    if (type.text().starts_with("__torch__.")) return pickle_->object(type.text());
    return call_global(*pickle_, type.text(), arguments);
  }

  bool build() {
    const auto state = pop(1).front();
    const auto& target = top();
    if (target.is(Kind::kObject)) {
      target.object().state = state;
    } else if (!target.is(Kind::kDict) && !target.is(Kind::kOtherTensor) && !target.is(Kind::kOtherValue) &&
               !target.is(Kind::kForeign)) {
      fail("it gives a state to something that has no state");
    }
    // An OrderedDict's state is the `_metadata` that modules store there, with the versions of their own formats.
    return false;
  }

  std::string_view bytes_;
  const Globals* globals_;  // null for torch.load()'s
  size_t position_ = 0;
  size_t opcode_position_ = 0;
  std::unique_ptr<Pickle> pickle_ = std::make_unique<Pickle>();
  std::deque<Value> stack_;
  std::vector<size_t> marks_;
  Memo memo_;
};

std::unique_ptr<Pickle> unpickle_all(std::string_view bytes, const Globals* globals, size_t max_bytes) {
  if (bytes.size() > max_bytes) {
    throw FormatError("the pickle has " + std::to_string(bytes.size()) + " bytes, more than the allowed " +
                      std::to_string(max_bytes));
  }
  Machine machine(bytes, globals);
  auto pickle = machine.run();
  if (machine.position() != bytes.size()) throw FormatError("the pickle is refused: bytes follow its end");
  return pickle;
}

}  // namespace

std::unique_ptr<Pickle> unpickle(std::string_view bytes) {
  return unpickle_all(bytes, nullptr, kMaxPickleBytes);
}

std::unique_ptr<Pickle> unpickle(std::string_view bytes, const Globals& globals, size_t max_bytes) {
  return unpickle_all(bytes, &globals, max_bytes);
}

std::unique_ptr<Pickle> unpickle_first(std::string_view& bytes) {
  Machine machine(bytes.substr(0, kMaxPickleBytes));
  auto pickle = machine.run();
  bytes.remove_prefix(machine.position());
  return pickle;
}

}  // namespace ddp::pt
