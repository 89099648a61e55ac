#include "checkpoint/pt/unpickler.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/opcodes.h"
#include "checkpoint/pt/rebuild.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

// Of the values' memory over the pickle's bytes: a tensor of four dimensions takes 180 bytes, and no less than 20 in
// the pickle. A small pickle may take kMostSize in any case.
constexpr size_t kMostGrowth = 64;
constexpr size_t kMostSize = size_t{1} << 16;

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  std::unique_ptr<Pickle> run() {
    try {
      while (!step(static_cast<Op>(read_byte()))) {
        if (pickle_->size() > kMostGrowth * position_ + kMostSize) {
          fail("its values are made of each other and take more memory than a file of its size can need");
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
        return push(read_long());
      case Op::kBinFloat:
        return push(Value(read_float()));
      case Op::kBinUnicode:
        return push(pickle_->text(std::string(take(read<uint32_t>()))));
      case Op::kShortBinString:
        return push(pickle_->bytes(std::string(take(read_byte()))));
      case Op::kBinString:
        return push(pickle_->bytes(std::string(take(read<uint32_t>()))));
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
        return append(pop_to_mark());
      case Op::kSetItem:
        return set_items(pop(2));
      case Op::kSetItems:
        return set_items(pop_to_mark());
      case Op::kBinPut:
        return put(read_byte());
      case Op::kLongBinPut:
        return put(read<uint32_t>());
      case Op::kBinGet:
        return get(read_byte());
      case Op::kLongBinGet:
        return get(read<uint32_t>());
      case Op::kGlobal:
        return global();
      case Op::kReduce: {
        const auto call = pop(2);
        if (!call[0].is(Kind::kGlobal)) fail("it calls something that is no function");
        return push(call_global(*pickle_, call[0].text(), call[1]));
      }
      case Op::kNewObj:
        return new_object();
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

  std::string_view take(size_t size) {
    if (size > bytes_.size() - position_) fail("it is cut short");
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

  Value read_long() {
    const auto digits = take(read_byte());
    if (digits.size() > sizeof(int64_t)) return pickle_->other_value("an integer of more than 64 bits");
    if (digits.empty()) return Value(int64_t{0});
    int64_t value = static_cast<signed char>(digits.back()) < 0 ? -1 : 0;
    std::memcpy(&value, digits.data(), digits.size());
    return Value(value);
  }

  std::string_view read_line() {
    const auto end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("it is cut short");
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
    if (!top().is(Kind::kList)) fail("it appends to something that is no list");
    auto& items = top().items();
    items.insert(items.end(), values.begin(), values.end());
    return false;
  }

  bool set_items(const std::vector<Value>& values) {
    if (!top().is(Kind::kDict)) fail("it sets an item of something that is no dict");
    if (values.size() % 2 != 0) fail("a dict has a key without a value");
    for (size_t i = 0; i < values.size(); i += 2) {
      if (!values[i].is_hashable()) fail("a dict has a key that is a list or a dict");
    }
    auto& items = top().items();
    items.insert(items.end(), values.begin(), values.end());
    return false;
  }

  // Writers number what they remember without gaps, so a larger number is no reason to allocate.
  bool put(size_t index) {
    if (index > memo_.size()) fail("it remembers a value under a number that is out of turn");
    if (index == memo_.size()) memo_.emplace_back();
    memo_[index] = top();
    return false;
  }

  bool get(size_t index) {
    if (index >= memo_.size()) fail("it asks for a value that it has not given");
    return push(memo_[index]);
  }

  // --- names and objects

  bool global() {
    const auto module = read_line();
    const auto name = std::string(module) + "." + std::string(read_line());
    if (!is_allowed_global(name)) {
      fail("it asks for " + quote_name(name) + ", which is not allowed; only tensors and plain values are read");
    }
    return push(pickle_->global(name));
  }

  bool new_object() {
    const auto parts = pop(2);
    if (!parts[0].is(Kind::kGlobal)) fail("it makes an object of something that is no class");
    const auto& name = parts[0].text();
    if (name.starts_with("__torch__.")) return push(pickle_->object(name));
    return push(call_global(*pickle_, name, parts[1]));
  }

  bool build() {
    const auto state = pop(1).front();
    const auto& target = top();
    if (target.is(Kind::kObject)) {
      target.object().state = state;
    } else if (!target.is(Kind::kDict) && !target.is(Kind::kOtherTensor) && !target.is(Kind::kOtherValue)) {
      fail("it gives a state to something that has none");
    }
    // An OrderedDict's state is the `_metadata` that modules put there: versions of their own layout.
    return false;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  size_t opcode_position_ = 0;
  std::unique_ptr<Pickle> pickle_ = std::make_unique<Pickle>();
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  std::vector<Value> memo_;
};

}  // namespace

std::unique_ptr<Pickle> unpickle(std::string_view bytes) {
  if (bytes.size() > kMaxPickleBytes) {
    throw FormatError("the pickle has " + std::to_string(bytes.size()) + " bytes, more than the allowed " +
                      std::to_string(kMaxPickleBytes));
  }
  auto pickle = unpickle_first(bytes);
  if (!bytes.empty()) throw FormatError("the pickle is refused: bytes follow its end");
  return pickle;
}

std::unique_ptr<Pickle> unpickle_first(std::string_view& bytes) {
  Machine machine(bytes.substr(0, kMaxPickleBytes));
  auto pickle = machine.run();
  bytes.remove_prefix(machine.position());
  return pickle;
}

}  // namespace ddp::pt
