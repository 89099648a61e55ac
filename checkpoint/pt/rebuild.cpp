#include "checkpoint/pt/rebuild.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/safetensors_header.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

// LibTorch's own operators stop at 64 dimensions.
constexpr size_t kMaxDimensions = 64;

[[noreturn]] void wrong(std::string_view function) {
  throw FormatError("the pickle calls " + quote_name(function) + " with arguments that do not fit");
}

std::vector<int64_t> integers(std::string_view function, const Value& value) {
  if (!value.is(Kind::kTuple) && !value.is(Kind::kList)) wrong(function);
  if (value.items().size() > kMaxDimensions) wrong(function);
  std::vector<int64_t> result;
  for (const auto& item : value.items()) {
    if (!item.is(Kind::kInt) || item.integer() < 0) wrong(function);
    result.push_back(item.integer());
  }
  return result;
}

// (storage, offset, sizes, strides, …), with the dtype at `dtype` for storages that have none.
Value rebuild_tensor(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments, size_t dtype) {
  if (arguments.size() < 4 || !arguments[0].is(Kind::kTensor) || !arguments[1].is(Kind::kInt)) wrong(function);
  auto tensor = arguments[0].tensor();
  tensor.offset = arguments[1].integer();
  tensor.sizes = integers(function, arguments[2]);
  tensor.strides = integers(function, arguments[3]);
  if (dtype != 0) {
    if (arguments.size() <= dtype || !arguments[dtype].is(Kind::kGlobal)) wrong(function);
    const std::string_view name = arguments[dtype].text();
    if (!name.starts_with("torch.") || dtype_by_name(name.substr(6)) == nullptr) wrong(function);
    tensor.dtype = name.substr(6);
  }
  if (tensor.offset < 0 || tensor.sizes.size() != tensor.strides.size() || tensor.dtype.empty()) wrong(function);
  return pickle.tensor(std::move(tensor));
}

// Python writes bytes as text whose characters are the bytes.
Value encode_latin1(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  if (arguments.size() != 2 || !arguments[0].is(Kind::kText) || !arguments[1].is(Kind::kText) ||
      arguments[1].text() != "latin1") {
    wrong(function);
  }
  const auto& text = arguments[0].text();
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
    } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size()) {
      bytes += static_cast<char>(((byte & 3) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3f));
    } else {
      wrong(function);
    }
  }
  return pickle.bytes(std::move(bytes));
}

// OrderedDict(), OrderedDict([(key, value), …]), Counter({key: count}).
Value make_dict(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  if (arguments.empty()) return pickle.container(Kind::kDict);
  if (arguments.size() != 1) wrong(function);
  if (arguments[0].is(Kind::kDict)) return pickle.container(Kind::kDict, arguments[0].items());
  std::vector<Value> content;
  if (arguments[0].is(Kind::kList)) {
    content.reserve(2 * arguments[0].items().size());
    for (const auto& pair : arguments[0].items()) {
      const bool is_pair = pair.is(Kind::kTuple) || pair.is(Kind::kList);
      if (!is_pair || pair.items().size() != 2) wrong(function);
      const auto& items = pair.items();
      if (!items[0].is(Kind::kText) && !items[0].is(Kind::kInt)) wrong(function);
      content.insert(content.end(), items.begin(), items.end());
    }
  } else {
    wrong(function);
  }
  return pickle.container(Kind::kDict, std::move(content));
}

enum class Action {
  kDict,
  kTensorV2,
  kTensorV3,
  kFirst,      // what wraps its first argument: parameters, type tags
  kFirstList,  // … which must be a list or tuple: Size, set, lists of one type
  kLatin1,
  kFromType,
};

struct Function {
  std::string_view name;
  Action action;
};

constexpr std::array kFunctions = {
    Function{"collections.OrderedDict", Action::kDict}, Function{"collections.Counter", Action::kDict},
    Function{"torch._utils._rebuild_tensor", Action::kTensorV2},
    Function{"torch._utils._rebuild_tensor_v2", Action::kTensorV2},
    Function{"torch._utils._rebuild_tensor_v3", Action::kTensorV3},
    Function{"torch._utils._rebuild_parameter", Action::kFirst},
    Function{"torch._utils._rebuild_parameter_with_state", Action::kFirst},
    Function{"torch.nn.parameter.Parameter", Action::kFirst},
    Function{"torch._tensor._rebuild_from_type_v2", Action::kFromType}, Function{"torch.Size", Action::kFirstList},
    Function{"torch.device", Action::kFirst}, Function{"torch.serialization._get_layout", Action::kFirst},
    Function{"_codecs.encode", Action::kLatin1}, Function{"builtins.bytearray", Action::kFirst},
    Function{"builtins.set", Action::kFirstList}, Function{"__builtin__.set", Action::kFirstList},
    Function{"__builtin__.bytearray", Action::kFirst},
    // LibTorch's own pickler
    Function{"torch.jit._pickle.build_intlist", Action::kFirstList},
    Function{"torch.jit._pickle.build_doublelist", Action::kFirstList},
    Function{"torch.jit._pickle.build_boollist", Action::kFirstList},
    Function{"torch.jit._pickle.build_tensorlist", Action::kFirstList},
    Function{"torch.jit._pickle.restore_type_tag", Action::kFirst}};

const Function* find_function(std::string_view name) {
  const auto* found =
      std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& each) { return each.name == name; });
  return found != kFunctions.end() ? found : nullptr;
}

}  // namespace

bool is_allowed_global(std::string_view name) {
  if (find_function(name) != nullptr || name.starts_with("__torch__.") || name == "torch.Tensor") return true;
  if (!name.starts_with("torch.")) return false;
  const auto rest = name.substr(name.starts_with("torch.storage.") ? 14 : 6);
  return dtype_by_name(rest) != nullptr || dtype_by_storage(rest) != nullptr || rest == "UntypedStorage";
}

Value call_global(Pickle& pickle, const std::string& function, const Value& arguments) {
  const auto* known = find_function(function);
  if (known == nullptr) throw FormatError("the pickle calls " + quote_name(function) + ", which is not allowed");
  if (!arguments.is(Kind::kTuple)) wrong(function);
  const auto& items = arguments.items();
  switch (known->action) {
    case Action::kDict:
      return make_dict(pickle, function, items);
    case Action::kTensorV2:
      return rebuild_tensor(pickle, function, items, 0);
    case Action::kTensorV3:
      return rebuild_tensor(pickle, function, items, 6);
    case Action::kFirst:
      if (items.empty()) wrong(function);
      return items[0];
    case Action::kFirstList:
      if (items.empty() || !(items[0].is(Kind::kList) || items[0].is(Kind::kTuple))) wrong(function);
      return items[0];
    case Action::kLatin1:
      return encode_latin1(pickle, function, items);
    case Action::kFromType:
      // (function, class, arguments, attributes); one level, so that a pickle cannot recurse here.
      if (items.size() < 3 || !items[0].is(Kind::kGlobal) || items[0].text() == function) wrong(function);
      return call_global(pickle, items[0].text(), items[2]);
  }
  wrong(function);
}

Value load_storage(Pickle& pickle, const Value& id) {
  const auto refuse = [] { return FormatError("the pickle refers to something that is no storage"); };
  if (!id.is(Kind::kTuple) || id.items().size() != 5) throw refuse();
  const auto& parts = id.items();
  const auto is_text = [](const Value& value) { return value.is(Kind::kText) || value.is(Kind::kBytes); };
  if (!is_text(parts[0]) || parts[0].text() != "storage" || !parts[1].is(Kind::kGlobal) || !is_text(parts[2]) ||
      !parts[4].is(Kind::kInt)) {
    throw refuse();
  }
  std::string_view storage_class = parts[1].text();
  if (const auto dot = storage_class.rfind('.'); dot != std::string_view::npos) storage_class.remove_prefix(dot + 1);
  const auto* dtype = dtype_by_storage(storage_class);
  if (dtype == nullptr && storage_class != "UntypedStorage") throw refuse();
  return pickle.tensor({.storage = parts[2].text(), .dtype = dtype != nullptr ? std::string(dtype->name) : ""});
}

}  // namespace ddp::pt
