#include "checkpoint/pt/rebuild_tensor.h"

#include <optional>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

// LibTorch's own operators stop at 64 dimensions.
constexpr size_t kMaxDimensions = 64;

std::vector<int64_t> integers(std::string_view function, const Value& value) {
  if (!value.is(Kind::kTuple) && !value.is(Kind::kList)) wrong_arguments(function);
  if (value.items().size() > kMaxDimensions) wrong_arguments(function);
  std::vector<int64_t> result;
  for (const auto& item : value.items()) {
    if (!item.is(Kind::kInt) || item.integer() < 0) wrong_arguments(function);
    result.push_back(item.integer());
  }
  return result;
}

std::optional<std::string_view> dtype_name(const Value& value) {
  constexpr std::string_view kTorch = "torch.";
  if (!value.is(Kind::kGlobal) || !value.text().starts_with(kTorch)) return std::nullopt;
  return std::string_view(value.text()).substr(kTorch.size());
}

// (storage, offset, sizes, strides).
TensorEntry view_of_storage(std::string_view function, const std::vector<Value>& arguments) {
  if (arguments.size() < 4 || !arguments[0].is(Kind::kStorage) || !arguments[1].is(Kind::kInt)) {
    wrong_arguments(function);
  }
  const auto& storage = arguments[0].storage();
  TensorEntry tensor{.storage = storage.key,
                     .dtype = storage.dtype,
                     .offset = arguments[1].integer(),
                     .sizes = integers(function, arguments[2]),
                     .strides = integers(function, arguments[3])};
  if (tensor.offset < 0 || tensor.sizes.size() != tensor.strides.size() ||
      __builtin_add_overflow(tensor.offset, storage.view_begin, &tensor.offset)) {
    wrong_arguments(function);
  }
  return tensor;
}

// {'conj': True}, {'neg': True}; a mark that is not known makes it another tensor.
Value with_metadata(Pickle& pickle, std::string_view function, TensorEntry tensor, const std::vector<Value>& arguments,
                    size_t position) {
  if (arguments.size() > position && !arguments[position].is(Kind::kNone)) {
    const auto& metadata = arguments[position];
    if (!metadata.is(Kind::kDict)) wrong_arguments(function);
    const auto& items = metadata.items();
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!items[i].is(Kind::kText) || !items[i + 1].is(Kind::kBool)) wrong_arguments(function);
      const auto& mark = items[i].text();
      if (mark == "conj") {
        tensor.is_conj = items[i + 1].boolean();
      } else if (mark == "neg") {
        tensor.is_neg = items[i + 1].boolean();
      } else {
        return pickle.other_tensor("a tensor with the mark " + quote_name(mark) + ", whose meaning is not known");
      }
    }
  }
  if (tensor.is_conj && !tensor.dtype.starts_with("complex")) wrong_arguments(function);
  if (tensor.is_neg && (tensor.dtype == "bool" || tensor.dtype.starts_with("float8"))) {
    return pickle.other_tensor("a negated tensor of the dtype torch." + tensor.dtype);
  }
  if (is_other_dtype(tensor.dtype)) return pickle.other_tensor("a tensor of the dtype torch." + tensor.dtype);
  return pickle.tensor(std::move(tensor));
}

}  // namespace

void wrong_arguments(std::string_view function) {
  throw FormatError("the pickle calls " + quote_name(function) + " with arguments that do not fit");
}

Value rebuild_tensor(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments) {
  if (arguments.size() > 4) wrong_arguments(function);
  return rebuild_tensor_v2(pickle, function, arguments);
}

Value rebuild_tensor_v2(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments) {
  auto tensor = view_of_storage(function, arguments);
  if (tensor.dtype.empty()) wrong_arguments(function);
  return with_metadata(pickle, function, std::move(tensor), arguments, 6);
}

Value rebuild_tensor_v3(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments) {
  auto tensor = view_of_storage(function, arguments);
  const auto name = arguments.size() > 6 ? dtype_name(arguments[6]) : std::nullopt;
  if (!name || (dtype_by_name(*name) == nullptr && !is_other_dtype(*name))) wrong_arguments(function);
  tensor.dtype = *name;
  return with_metadata(pickle, function, std::move(tensor), arguments, 7);
}

Value rebuild_sparse(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments) {
  if (arguments.size() != 2 || !arguments[0].is(Kind::kOtherValue) || !arguments[1].is(Kind::kTuple)) {
    wrong_arguments(function);
  }
  return pickle.other_tensor("a sparse tensor (" + arguments[0].text() + "); save it with .to_dense()");
}

Value rebuild_from_cpu(Pickle& pickle, std::string_view function, const std::vector<Value>& arguments) {
  if (arguments.size() < 2) wrong_arguments(function);
  const auto name = dtype_name(arguments[1]);
  const auto& tensor = arguments[0];
  if (!name || !(tensor.is(Kind::kTensor) || tensor.is(Kind::kOtherTensor))) wrong_arguments(function);
  if (tensor.is(Kind::kTensor) && tensor.tensor().dtype != *name) {
    return pickle.other_tensor("a tensor of a device that has converted it to torch." + std::string(*name));
  }
  return tensor;
}

}  // namespace ddp::pt
