#include "checkpoint/pt/pickler.h"

#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

#include "checkpoint/core/latin1.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/opcodes.h"

namespace ddp::pt {
namespace {

void add(std::string& out, Op op) {
  out += static_cast<char>(op);
}

template <typename Number>
void add_number(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

Pickler::Pickler() {
  add(out_, Op::kProto);
  out_ += '\2';
}

void Pickler::none() {
  add(out_, Op::kNone);
}

void Pickler::boolean(bool value) {
  add(out_, value ? Op::kNewTrue : Op::kNewFalse);
}

void Pickler::integer(int64_t value) {
  if (value >= 0 && value < 256) {
    add(out_, Op::kBinInt1);
    out_ += static_cast<char>(value);
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    add(out_, Op::kBinInt);
    add_number(out_, static_cast<int32_t>(value));
  } else {
    add(out_, Op::kLong1);
    out_ += '\10';
    add_number(out_, value);
  }
}

void Pickler::whole_number(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return integer(static_cast<int64_t>(value));
  add(out_, Op::kLong1);
  out_ += '\11';
  add_number(out_, value);
  out_ += '\0';  // the sign
}

void Pickler::real(double value) {
  add(out_, Op::kBinFloat);
  add_number(out_, __builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void Pickler::text(std::string_view value) {
  if (value.size() > std::numeric_limits<uint32_t>::max()) throw std::length_error("a text is too long for a pickle");
  add(out_, Op::kBinUnicode);
  add_number(out_, static_cast<uint32_t>(value.size()));
  out_ += value;
}

void Pickler::bytes(std::string_view value) {
  global("_codecs", "encode");
  text(latin1_to_utf8(value));
  text("latin1");
  add(out_, Op::kTuple2);
  add(out_, Op::kReduce);
}

void Pickler::begin_dict() {
  add(out_, Op::kEmptyDict);
  add(out_, Op::kMark);
}

void Pickler::end_dict() {
  add(out_, Op::kSetItems);
}

void Pickler::begin_list() {
  add(out_, Op::kEmptyList);
  add(out_, Op::kMark);
}

void Pickler::end_list() {
  add(out_, Op::kAppends);
}

void Pickler::begin_tuple() {
  add(out_, Op::kMark);
}

void Pickler::end_tuple() {
  add(out_, Op::kTuple);
}

void Pickler::tensor(const TensorEntry& entry, int64_t storage_elements) {
  const auto* dtype = dtype_by_name(entry.dtype);
  if (dtype == nullptr)
    throw std::invalid_argument("cannot save dtype " + entry.dtype +
                                " in a .pt file: PyTorch has no such dtype; convert the tensor first");
  const bool is_typed = dtype_by_storage(dtype->storage) != nullptr;
  global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  begin_tuple();
  begin_tuple();
  text("storage");
  global(is_typed ? "torch" : "torch.storage", dtype->storage);
  text(entry.storage);
  text("cpu");
  integer(is_typed ? storage_elements : storage_elements * static_cast<int64_t>(dtype->bytes));
  end_tuple();
  add(out_, Op::kBinPersId);
  integer(entry.offset);
  integers(entry.sizes);
  integers(entry.strides);
  boolean(false);  // requires_grad
  global("collections", "OrderedDict");
  add(out_, Op::kEmptyTuple);
  add(out_, Op::kReduce);  // hooks
  if (!is_typed) global("torch", dtype->name);
  end_tuple();
  add(out_, Op::kReduce);
}

std::string Pickler::take() {
  add(out_, Op::kStop);
  return std::exchange(out_, {});
}

void Pickler::global(std::string_view module, std::string_view name) {
  add(out_, Op::kGlobal);
  out_.append(module).append("\n").append(name).append("\n");
}

void Pickler::call() {
  add(out_, Op::kReduce);
}

void Pickler::make() {
  add(out_, Op::kNewObj);
}

void Pickler::build() {
  add(out_, Op::kBuild);
}

void Pickler::put_memo(uint32_t number) {
  write_memo_op(Op::kBinPut, Op::kLongBinPut, number);
}

void Pickler::get_memo(uint32_t number) {
  write_memo_op(Op::kBinGet, Op::kLongBinGet, number);
}

void Pickler::write_memo_op(Op small, Op large, uint32_t number) {
  if (number < 256) {
    add(out_, small);
    out_ += static_cast<char>(number);
  } else {
    add(out_, large);
    add_number(out_, number);
  }
}

void Pickler::integers(const std::vector<int64_t>& values) {
  begin_tuple();
  for (const auto value : values) integer(value);
  end_tuple();
}

}  // namespace ddp::pt
