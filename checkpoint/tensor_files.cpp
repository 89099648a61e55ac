#include "ddprun/checkpoint/tensor_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/chunked_tensors.h"
#include "checkpoint/core/atomic_file.h"
#include "checkpoint/core/sharded_index.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/module_state.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt_tensors.h"
#include "checkpoint/safetensors_bytes.h"
#include "checkpoint/storage/folder_names.h"

namespace ddp {
namespace {

using safetensors::quote_name;

constexpr std::array<std::pair<at::ScalarType, const char*>, 21> kPythonNames = {{
    {at::kDouble, "float64"},
    {at::kFloat, "float32"},
    {at::kHalf, "float16"},
    {at::kBFloat16, "bfloat16"},
    {at::kLong, "int64"},
    {at::kInt, "int32"},
    {at::kShort, "int16"},
    {at::kChar, "int8"},
    {at::kByte, "uint8"},
    {at::kBool, "bool"},
    {at::kComplexHalf, "complex32"},
    {at::kComplexFloat, "complex64"},
    {at::kComplexDouble, "complex128"},
    {at::kUInt16, "uint16"},
    {at::kUInt32, "uint32"},
    {at::kUInt64, "uint64"},
    {at::kFloat8_e4m3fn, "float8_e4m3fn"},
    {at::kFloat8_e5m2, "float8_e5m2"},
    {at::kFloat8_e4m3fnuz, "float8_e4m3fnuz"},
    {at::kFloat8_e5m2fnuz, "float8_e5m2fnuz"},
    {at::kFloat8_e8m0fnu, "float8_e8m0fnu"},
}};

// A tensor that cannot be read, though its file can.
class UnsupportedTensor : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// In memory of its own: the values as they look, row by row.
at::Tensor copy_pt(const pt::TensorEntry& entry, std::string_view bytes, const at::TensorOptions& options,
                   pt::CopyAllowance& allowance) {
  try {
    allowance.spend(entry);
  } catch (const pt::FormatError& error) {
    throw UnsupportedTensor(error.what());
  }
  auto tensor = at::empty(entry.sizes, options);
  pt::gather_elements(entry, bytes, static_cast<char*>(tensor.mutable_data_ptr()));
  return tensor;
}

// A tensor in the file's mapped memory where that has its values as they are.
at::Tensor view_entry(const pt::PtFile& file, const pt::TensorEntry& entry, pt::CopyAllowance& allowance) {
  const auto dtype = scalar_type_of_python_name(entry.dtype);
  if (!dtype) throw UnsupportedTensor("a tensor of the dtype torch." + entry.dtype);
  const auto bytes = file.bytes_of(entry);
  // Any other value in a C++ bool is undefined behaviour.
  if (*dtype == at::kBool && std::any_of(bytes.begin(), bytes.end(), [](char c) { return (c & ~1) != 0; })) {
    throw UnsupportedTensor("a bool tensor with a byte that is neither 0 nor 1");
  }
  const auto options = at::TensorOptions(*dtype);
  if (bytes.empty()) return at::empty(entry.sizes, options);
  const auto alignment = pt::dtype_by_name(entry.dtype)->bytes;
  // torch.save aligns storages to 64 bytes, but not before PyTorch 1.6, and zip programs do not.
  const bool is_aligned = reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0;
  if (!is_aligned || entry.is_conj || entry.is_neg) return copy_pt(entry, bytes, options, allowance);
  return at::from_blob(
      const_cast<char*>(bytes.data()), entry.sizes, entry.strides, [owner = file.owner()](void*) {}, options);
}

StoredTensors open_pt(storage::Bytes bytes, const std::filesystem::path& path, const std::string& key) {
  const pt::PtFile file(std::move(bytes), path);
  StoredTensors stored{.source = path.string()};
  try {
    auto state = pt::find_state(key.empty() ? file.root() : pt::select(file.root(), key), pt::scalar_reader(file));
    stored.metadata = std::move(state.metadata);
    stored.skipped = std::move(state.skipped);
    stored.entries = std::move(state.entries);
    stored.tensors = view_pt(file, state, stored.skipped);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path.string() + " cannot be read as a .pt file: " + error.what());
  }
  return stored;
}

StoredTensors open_file(const std::filesystem::path& path, const std::string& key) {
  storage::FileSystem file_system;
  auto bytes = storage::map_file(file_system, path);
  if (pt::looks_like_pt(bytes.view)) return open_pt(std::move(bytes), path, key);
  return select_entry(view_safetensors(std::move(bytes), path), key);
}

// A shard is a file with tensors: neither an index nor a folder, which could lead back here without end.
StoredTensors open_shards(const std::filesystem::path& index) {
  storage::FileSystem file_system;
  ShardedIndex shards;
  try {
    shards = parse_sharded_index(storage::map_file(file_system, index).view);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(index.string() + " is not an index of a model's files: " + error.what());
  }
  StoredTensors all{.source = index.string(), .tensors = {}, .metadata = {}, .skipped = {}};
  for (const auto& [file, names] : shards) {
    const auto shard = open_file(index.parent_path() / file, "");
    for (const auto& name : names) {
      const auto found = shard.tensors.find(name);
      if (found == shard.tensors.end()) {
        throw std::runtime_error(shard.source + " lacks the tensor " + quote_name(name) + ", which " + index.string() +
                                 " says is there");
      }
      all.tensors.emplace(name, found->second);
    }
    all.metadata.insert(shard.metadata.begin(), shard.metadata.end());
  }
  return all;
}

// The file with the model in `folder`; a directory of checkpoints is named as such.
std::filesystem::path model_file(storage::FileSystem& file_system, const std::filesystem::path& folder) {
  std::optional<int64_t> newest;
  for (const auto& name : file_system.entries(folder)) newest = std::max(newest, storage::step_of(name));
  if (!newest || find_model_in_folder(folder)) return model_in_folder(folder);
  throw std::runtime_error(folder.string() + " is a directory of checkpoints, expected one of them: give " +
                           (folder / storage::folder_name(*newest)).string());
}

// The model in files that hold chunks of its tensors: each tensor whole, in memory of its own.
StoredTensors open_sharded_model(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                 const std::string& key) {
  const auto opened = open_sharded_folder(file_system, folder);
  const auto part = opened.parts.find("model.safetensors");
  if (part == opened.parts.end()) throw std::runtime_error(folder.string() + " holds no model");
  ChunkedTensors chunks(file_system, *part->second, folder, part->first);
  auto stored = select_entry(chunks.described(), key);
  for (auto& [name, tensor] : stored.tensors) tensor = chunks.request(tensor);
  chunks.read();
  stored.skipped = opened.skipped;
  return stored;
}

// Contiguous CPU tensors; those that are the same memory stay so.
class PtTensors {
 public:
  std::vector<pt::PtTensor> add(const TensorMap& tensors) {
    std::vector<pt::PtTensor> result;
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_meta()) {
        throw std::invalid_argument("tensor " + quote_name(name) + " is undefined, sparse, quantized or without data");
      }
      const auto type = tensor.scalar_type();
      const auto* dtype =
          std::find_if(kPythonNames.begin(), kPythonNames.end(), [&](const auto& each) { return type == each.first; });
      if (dtype == kPythonNames.end()) {
        throw std::invalid_argument("tensor " + quote_name(name) + " has the dtype " + c10::toString(type) +
                                    ", which is not supported");
      }
      const auto& plain = kept_.emplace_back(tensor.detach().resolve_conj().resolve_neg().cpu().contiguous());
      result.push_back({.name = name,
                        .dtype = dtype->second,
                        .sizes = plain.sizes().vec(),
                        .bytes = {static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()}});
    }
    return result;
  }

 private:
  std::vector<at::Tensor> kept_;
};

}  // namespace

std::optional<at::ScalarType> scalar_type_of_python_name(std::string_view name) {
  const auto* found =
      std::find_if(kPythonNames.begin(), kPythonNames.end(), [&](const auto& each) { return name == each.second; });
  if (found == kPythonNames.end()) return std::nullopt;
  return found->first;
}

at::Tensor view_pt(const pt::PtFile& file, const std::string& name, const pt::TensorEntry& entry) {
  pt::CopyAllowance allowance(file.size());
  try {
    return view_entry(file, entry, allowance);
  } catch (const UnsupportedTensor& error) {
    throw std::runtime_error("tensor " + quote_name(name) + " cannot be read: it is " + error.what());
  }
}

TensorMap view_pt(const pt::PtFile& file, const pt::StateDict& state, std::map<std::string, std::string>& skipped) {
  TensorMap tensors;
  pt::CopyAllowance allowance(file.size());
  for (const auto& [name, entry] : state.tensors) {
    try {
      tensors.emplace(name, view_entry(file, entry, allowance));
    } catch (const UnsupportedTensor& error) {
      skipped.emplace(name, error.what());
    }
  }
  for (const auto& [name, value] : state.scalars) {
    const bool is_float = !(static_cast<float>(value) != value);  // also NaN
    tensors.emplace(name, at::scalar_tensor(value, is_float ? at::kFloat : at::kDouble));
  }
  return tensors;
}

StoredTensors view_safetensors(storage::Bytes bytes, const std::filesystem::path& path) {
  const SafetensorsFile file(std::move(bytes), path);
  StoredTensors stored{.source = path.string(), .tensors = {}, .metadata = file.header().metadata, .skipped = {}};
  for (const auto& entry : file.header().tensors) stored.tensors.emplace(entry.name, file.view(entry));
  return stored;
}

StoredTensors open_tensors(const std::filesystem::path& path, const std::string& key) {
  storage::FileSystem file_system;
  if (is_sharded_folder(file_system, path)) return open_sharded_model(file_system, path, key);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return open_tensors(model_file(file_system, path), key);
  if (is_sharded_index(path)) return select_entry(open_shards(path), key);
  return open_file(path, key);
}

void save_pt(const std::filesystem::path& path, const TensorMap& model, const PtExtras& extras) {
  PtTensors tensors;
  pt::PtContents contents;
  contents.model = tensors.add(model);
  if (!extras.optimizer_groups.empty()) {
    contents.optimizers[""] = {.groups = extras.optimizer_groups, .tensors = tensors.add(extras.optimizer)};
  }
  contents.values = extras.values;
  AtomicFile file(path);
  pt::write_pt(file, contents);
  file.commit();
}

}  // namespace ddp
