#include "checkpoint/pt/rebuild.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/core/latin1.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/rebuild_tensor.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

// _codecs.encode(text, 'latin1'); bytearray(), bytearray(bytes), bytearray(text, 'latin-1').
Value make_bytes(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  if (function.ends_with(".bytearray")) {
    if (arguments.empty()) return pickle.bytes("");
    if (arguments.size() == 1 && arguments[0].is(Kind::kBytes)) return arguments[0];
  }
  if (arguments.size() != 2 || !arguments[0].is(Kind::kText) || !arguments[1].is(Kind::kText)) {
    wrong_arguments(function);
  }
  const auto& encoding = arguments[1].text();
  auto bytes = encoding == "latin1" || encoding == "latin-1" ? utf8_to_latin1(arguments[0].text()) : std::nullopt;
  if (!bytes) wrong_arguments(function);
  return pickle.bytes(std::move(*bytes));
}

// defaultdict(), defaultdict(function): its items follow.
Value make_default_dict(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  if (arguments.size() > 1) wrong_arguments(function);
  return pickle.container(Kind::kDict);
}

// OrderedDict(), OrderedDict([(key, value), …]), Counter({key: count}).
Value make_dict(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  if (arguments.empty()) return pickle.container(Kind::kDict);
  if (arguments.size() != 1) wrong_arguments(function);
  if (arguments[0].is(Kind::kDict)) return pickle.container(Kind::kDict, arguments[0].items());
  std::vector<Value> content;
  if (arguments[0].is(Kind::kList)) {
    content.reserve(2 * arguments[0].items().size());
    for (const auto& pair : arguments[0].items()) {
      const bool is_pair = pair.is(Kind::kTuple) || pair.is(Kind::kList);
      if (!is_pair || pair.items().size() != 2) wrong_arguments(function);
      const auto& items = pair.items();
      if (!items[0].is_hashable()) wrong_arguments(function);
      content.insert(content.end(), items.begin(), items.end());
    }
  } else {
    wrong_arguments(function);
  }
  return pickle.container(Kind::kDict, std::move(content));
}

enum class Action {
  kDict,
  kDefaultDict,
  kTensor,
  kTensorV2,
  kTensorV3,
  kSparse,
  kFromCpu,
  kFirst,      // what wraps its first argument: parameters, type tags
  kFirstList,  // … which must be a list or tuple: Size, set, lists of one type
  kBytes,
  kFromType,
  kLayout,
  kOtherTensor,  // tensors that this reader does not read
  kOtherValue,   // values that this reader does not read
};

struct Function {
  std::string_view name;
  Action action;
  std::string_view what = {};
};

constexpr std::array kFunctions = {
    Function{"collections.OrderedDict", Action::kDict}, Function{"collections.Counter", Action::kDict},
    Function{"collections.defaultdict", Action::kDefaultDict},
    Function{"torch._utils._rebuild_tensor", Action::kTensor},
    Function{"torch._utils._rebuild_tensor_v2", Action::kTensorV2},
    Function{"torch._utils._rebuild_tensor_v3", Action::kTensorV3},
    Function{"torch._utils._rebuild_parameter", Action::kFirst},
    Function{"torch._utils._rebuild_parameter_with_state", Action::kFirst},
    Function{"torch.nn.parameter.Parameter", Action::kFirst},
    Function{"torch._utils._rebuild_sparse_tensor", Action::kSparse},
    Function{"torch._utils._rebuild_qtensor", Action::kOtherTensor,
             "a quantized tensor; save it with .dequantize(), or int_repr(), scale and zero point"},
    Function{"torch._utils._rebuild_nested_tensor", Action::kOtherTensor, "a nested tensor; save it padded or unbound"},
    Function{"torch._utils._rebuild_meta_tensor_no_storage", Action::kOtherTensor,
             "a tensor of the meta device, which has no data"},
    Function{"torch._utils._rebuild_device_tensor_from_cpu_tensor", Action::kFromCpu},
    Function{"torch._utils._rebuild_device_tensor_from_numpy", Action::kOtherTensor, "a tensor that is a numpy array"},
    Function{"torch._utils._rebuild_wrapper_subclass", Action::kOtherTensor, "a tensor of a class of its own"},
    Function{"torch._tensor._rebuild_from_type_v2", Action::kFromType},
    // These functions exist in Python after their modules were imported.
    Function{"torch.nested._internal.nested_tensor._rebuild_njt", Action::kOtherTensor,
             "a nested tensor; save it padded or unbound"},
    Function{"torch._dynamo.decorators._DimRange", Action::kOtherValue, "a range of sizes"},
    Function{"torch.distributed.device_mesh.DeviceMesh", Action::kOtherValue, "a mesh of devices"},
    Function{"torch.distributed.tensor._dtensor_spec.DTensorSpec", Action::kOtherValue, "a DTensor's layout"},
    Function{"torch.distributed.tensor._dtensor_spec.TensorMeta", Action::kOtherValue, "a DTensor's shape"},
    Function{"torch.distributed.tensor.placement_types.Partial", Action::kOtherValue, "a DTensor's placement"},
    Function{"torch.distributed.tensor.placement_types.Replicate", Action::kOtherValue, "a DTensor's placement"},
    Function{"torch.distributed.tensor.placement_types.Shard", Action::kOtherValue, "a DTensor's placement"},
    Function{"torch.Size", Action::kFirstList}, Function{"torch.device", Action::kOtherValue, "a device"},
    Function{"torch.serialization._get_layout", Action::kLayout}, Function{"_codecs.encode", Action::kBytes},
    Function{"builtins.bytearray", Action::kBytes}, Function{"builtins.set", Action::kFirstList},
    Function{"__builtin__.set", Action::kFirstList}, Function{"__builtin__.bytearray", Action::kBytes},
    Function{"builtins.complex", Action::kOtherValue, "a complex number"},
    Function{"__builtin__.complex", Action::kOtherValue, "a complex number"},
    // functions of LibTorch's own pickler
    Function{"torch.jit._pickle.build_intlist", Action::kFirstList},
    Function{"torch.jit._pickle.build_doublelist", Action::kFirstList},
    Function{"torch.jit._pickle.build_boollist", Action::kFirstList},
    Function{"torch.jit._pickle.build_tensorlist", Action::kFirstList},
    Function{"torch.jit._pickle.restore_type_tag", Action::kFirst}};

// Globals that a pickle may mention but does not call.
constexpr std::array<std::string_view, 10> kNames = {"torch.Tensor",
                                                     "torch.per_tensor_affine",
                                                     "torch.per_tensor_symmetric",
                                                     "torch.per_channel_affine",
                                                     "torch.per_channel_symmetric",
                                                     "torch.per_channel_affine_float_qparams",
                                                     "torch.nested._internal.nested_tensor.NestedTensor",
                                                     "torch.distributed.tensor.DTensor",
                                                     "torch.storage.TypedStorage",
                                                     "torch.storage._LegacyStorage"};

const Function* find_function(std::string_view name) {
  const auto* found =
      std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& each) { return each.name == name; });
  return found != kFunctions.end() ? found : nullptr;
}

std::string_view after_last_dot(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

bool is_storage_class(std::string_view name) {
  return dtype_by_storage(name) != nullptr || other_dtype_by_storage(name) != nullptr || name == "UntypedStorage";
}

Value layout(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  if (arguments.size() != 1 || !arguments[0].is(Kind::kText)) wrong_arguments(function);
  return pickle.other_value(arguments[0].text());
}

// The arguments are (function, class, arguments, attributes).
Value from_type(Pickle& pickle, const std::string& function, const std::vector<Value>& arguments) {
  // Not nested, so that a pickle cannot cause a recursion here.
  if (arguments.size() < 3 || !arguments[0].is(Kind::kGlobal) || arguments[0].text() == function) {
    wrong_arguments(function);
  }
  return call_global(pickle, arguments[0].text(), arguments[2]);
}

// The object's class, if it is an argument of `function`; otherwise the function's name.
std::string_view class_of(const std::string& function, const std::vector<Value>& arguments) {
  const bool is_first = function == "copyreg._reconstructor" || function == "copy_reg._reconstructor" ||
                        function == "copyreg.__newobj__" || function == "copy_reg.__newobj__";
  return is_first && !arguments.empty() && arguments[0].is(Kind::kGlobal) ? arguments[0].text() : function;
}

Value foreign_object(Pickle& pickle, std::string_view type) {
  return pickle.foreign("an object of " + quote_name(type) + ", which is neither a tensor nor a plain value");
}

// The result of an unknown function.
Value call_foreign(Pickle& pickle, const std::string& function, const Value& arguments) {
  const auto items = arguments.is(Kind::kTuple) ? arguments.items() : std::vector<Value>{};
  const bool makes_tensor = std::ranges::any_of(items, [](const auto& item) { return item.is(Kind::kStorage); });
  if (is_known_global(function) || makes_tensor) {
    throw FormatError("the pickle calls " + quote_name(function) + ", which is not allowed");
  }
  return foreign_object(pickle, class_of(function, items));
}

Value first_list(const std::string& function, const std::vector<Value>& arguments) {
  const bool is_list = !arguments.empty() && (arguments[0].is(Kind::kList) || arguments[0].is(Kind::kTuple));
  if (!is_list) wrong_arguments(function);
  return arguments[0];
}

FormatError no_storage() {
  return FormatError("the pickle refers to something that is not a storage");
}

bool is_count(const Value& value) {
  return value.is(Kind::kInt) && value.integer() >= 0;
}

// A storage may be part of another one: its key, where it begins there, how long it is.
int64_t begin_of_view(const Value& view, int64_t elements) {
  if (!view.is(Kind::kTuple) || view.items().size() != 3) throw no_storage();
  const auto& begin = view.items()[1];
  const auto& size = view.items()[2];
  if (!is_count(begin) || !is_count(size)) throw no_storage();
  if (begin.integer() > elements || size.integer() > elements - begin.integer()) throw no_storage();
  return begin.integer();
}

}  // namespace

bool is_known_global(std::string_view name) {
  if (find_function(name) != nullptr || name.starts_with("__torch__.")) return true;
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  for (const std::string_view module : {"torch.storage.", "torch.cuda.", "torch."}) {
    if (!name.starts_with(module)) continue;
    const auto rest = name.substr(module.size());
    if (is_storage_class(rest)) return true;
    return module == "torch." && (dtype_by_name(rest) != nullptr || is_other_dtype(rest));
  }
  return false;
}

Value call_global(Pickle& pickle, const std::string& function, const Value& arguments) {
  const auto* known = find_function(function);
  if (known == nullptr) return call_foreign(pickle, function, arguments);
  if (!arguments.is(Kind::kTuple)) wrong_arguments(function);
  const auto& items = arguments.items();
  switch (known->action) {
    case Action::kDict:
      return make_dict(pickle, function, items);
    case Action::kDefaultDict:
      return make_default_dict(pickle, function, items);
    case Action::kTensor:
      return rebuild_tensor(pickle, function, items);
    case Action::kTensorV2:
      return rebuild_tensor_v2(pickle, function, items);
    case Action::kTensorV3:
      return rebuild_tensor_v3(pickle, function, items);
    case Action::kSparse:
      return rebuild_sparse(pickle, function, items);
    case Action::kFromCpu:
      return rebuild_from_cpu(pickle, function, items);
    case Action::kFirst:
      if (items.empty()) wrong_arguments(function);
      return items[0];
    case Action::kFirstList:
      return first_list(function, items);
    case Action::kBytes:
      return make_bytes(pickle, function, items);
    case Action::kFromType:
      return from_type(pickle, function, items);
    case Action::kLayout:
      return layout(pickle, function, items);
    case Action::kOtherTensor:
      return pickle.other_tensor(std::string(known->what));
    case Action::kOtherValue:
      return pickle.other_value(std::string(known->what));
  }
  wrong_arguments(function);
}

Value load_storage(Pickle& pickle, const Value& id) {
  if (!id.is(Kind::kTuple)) throw no_storage();
  const auto& parts = id.items();
  const auto is_text = [](const Value& value) { return value.is(Kind::kText) || value.is(Kind::kBytes); };
  if (parts.size() == 4 && is_text(parts[0]) && parts[0].text() == "module" && parts[1].is(Kind::kGlobal)) {
    return foreign_object(pickle, parts[1].text());
  }
  if (parts.size() < 5 || parts.size() > 6) throw no_storage();
  if (!is_text(parts[0]) || parts[0].text() != "storage" || !parts[1].is(Kind::kGlobal) || !is_text(parts[2]) ||
      !is_count(parts[4])) {
    throw no_storage();
  }
  const auto storage_class = after_last_dot(parts[1].text());
  if (!is_storage_class(storage_class)) throw no_storage();
  StorageEntry storage{.key = parts[2].text(), .elements = parts[4].integer()};
  const auto* dtype = dtype_by_storage(storage_class);
  if (dtype == nullptr) dtype = other_dtype_by_storage(storage_class);
  if (dtype != nullptr) storage.dtype = dtype->name;
  if (parts.size() == 6 && !parts[5].is(Kind::kNone)) storage.view_begin = begin_of_view(parts[5], storage.elements);
  return pickle.storage(std::move(storage));
}

}  // namespace ddp::pt
