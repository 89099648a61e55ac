#include "checkpoint/dcp/metadata_globals.h"

#include <algorithm>
#include <array>
#include <string>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/dtypes.h"

namespace ddp::dcp {
namespace {

using pt::FormatError;
using pt::Kind;
using pt::Value;
using safetensors::quote_name;

struct Class {
  std::string_view name;
  const char* ours;
};

constexpr std::array kClasses = {
    Class{"torch.distributed.checkpoint.metadata.Metadata", kMetadataClass},
    Class{"torch.distributed.checkpoint.metadata.TensorStorageMetadata", kTensorClass},
    Class{"torch.distributed.checkpoint.metadata.TensorProperties", kPropertiesClass},
    Class{"torch.distributed._shard.sharded_tensor.metadata.TensorProperties", kPropertiesClass},  // until 2.3
    Class{"torch.distributed.checkpoint.metadata.ChunkStorageMetadata", kChunkClass},
    Class{"torch.distributed.checkpoint.metadata.BytesStorageMetadata", kBytesClass},
    Class{"torch.distributed.checkpoint.metadata.MetadataIndex", kIndexClass},
    Class{"torch.distributed.checkpoint.metadata.StorageMeta", kStorageClass},
    Class{"torch.distributed.checkpoint.filesystem._StorageInfo", kInfoClass}};

enum class Action : uint8_t {
  kSize,       // torch.Size((2, 3))
  kLayout,     // _get_layout("torch.strided")
  kFormat,     // a memory format by its number
  kAttribute,  // … by its name, as Python 3.11.0 to 3.11.3 has it
  kPath,       // the folder in which it was saved
};

struct Function {
  std::string_view name;
  Action action;
};

constexpr std::array kFunctions = {
    Function{"torch.Size", Action::kSize},
    Function{"torch.serialization._get_layout", Action::kLayout},
    Function{"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", Action::kFormat},
    Function{"torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING", Action::kFormat},
    Function{"builtins.getattr", Action::kAttribute},
    Function{"__builtin__.getattr", Action::kAttribute},
    Function{"pathlib.PosixPath", Action::kPath},
    Function{"pathlib.PurePosixPath", Action::kPath},
    Function{"pathlib.WindowsPath", Action::kPath},
    Function{"pathlib.PureWindowsPath", Action::kPath},
    Function{"pathlib._local.PosixPath", Action::kPath},  // Python 3.13
    Function{"pathlib._local.PurePosixPath", Action::kPath},
    Function{"pathlib._local.WindowsPath", Action::kPath},
    Function{"pathlib._local.PureWindowsPath", Action::kPath}};

const Function* find_function(std::string_view name) {
  const auto* found =
      std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& each) { return each.name == name; });
  return found != kFunctions.end() ? found : nullptr;
}

const Class* find_class(std::string_view name) {
  const auto* found =
      std::find_if(kClasses.begin(), kClasses.end(), [&](const auto& each) { return each.name == name; });
  return found != kClasses.end() ? found : nullptr;
}

bool is_dtype(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (!name.starts_with(kTorch)) return false;
  name.remove_prefix(kTorch.size());
  return pt::dtype_by_name(name) != nullptr || pt::is_other_dtype(name);
}

[[noreturn]] void refuse(std::string_view name) {
  throw FormatError("it asks for " + quote_name(name) +
                    ", which is not part of a checkpoint's metadata and is not executed");
}

[[noreturn]] void wrong_arguments(std::string_view function) {
  throw FormatError("it calls " + quote_name(function) + " with arguments that do not fit");
}

bool is_format(const Value& value) {
  const auto* function = value.is(Kind::kGlobal) ? find_function(value.text()) : nullptr;
  return function != nullptr && function->action == Action::kFormat;
}

bool is_size(const Value& value) {
  if (!value.is(Kind::kTuple) && !value.is(Kind::kList)) return false;
  return std::ranges::all_of(value.items(), [](const Value& item) { return item.is(Kind::kInt); });
}

}  // namespace

void MetadataGlobals::check(std::string_view name) const {
  if (find_class(name) == nullptr && find_function(name) == nullptr && !is_dtype(name)) refuse(name);
}

Value MetadataGlobals::call(pt::Pickle& pickle, const std::string& function, const Value& arguments) const {
  const auto* known = find_function(function);
  if (known == nullptr || !arguments.is(Kind::kTuple)) wrong_arguments(function);
  const auto& items = arguments.items();
  switch (known->action) {
    case Action::kSize:
      if (items.size() != 1 || !is_size(items[0])) wrong_arguments(function);
      return items[0];
    case Action::kLayout:
      if (items.size() != 1 || !items[0].is(Kind::kText)) wrong_arguments(function);
      return items[0];
    case Action::kFormat:
      if (items.size() != 1 || !items[0].is(Kind::kInt)) wrong_arguments(function);
      return items[0];
    case Action::kAttribute:
      if (items.size() != 2 || !is_format(items[0]) || !items[1].is(Kind::kText)) wrong_arguments(function);
      return items[1];
    case Action::kPath:
      if (!std::ranges::all_of(items, [](const Value& item) { return item.is(Kind::kText); })) {
        wrong_arguments(function);
      }
      return pickle.other_value("a path");
  }
  wrong_arguments(function);
}

Value MetadataGlobals::make(pt::Pickle& pickle, const std::string& type, const Value& arguments) const {
  const auto* known = find_class(type);
  if (known == nullptr || !arguments.is(Kind::kTuple) || !arguments.items().empty()) wrong_arguments(type);
  return pickle.object(known->ours);
}

}  // namespace ddp::dcp
