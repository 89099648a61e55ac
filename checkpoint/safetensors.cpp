#include "ddprun/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/core/atomic_file.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/safetensors_bytes.h"

namespace ddp {
namespace {

using safetensors::DType;
using safetensors::quote_name;

constexpr std::array<std::pair<at::ScalarType, DType>, 19> kScalarTypes = {{
    {at::kBool, DType::kBool},
    {at::kByte, DType::kU8},
    {at::kChar, DType::kI8},
    {at::kFloat8_e5m2, DType::kF8E5M2},
    {at::kFloat8_e4m3fn, DType::kF8E4M3},
    {at::kFloat8_e8m0fnu, DType::kF8E8M0},
    {at::kFloat8_e4m3fnuz, DType::kF8E4M3FNUZ},
    {at::kFloat8_e5m2fnuz, DType::kF8E5M2FNUZ},
    {at::kShort, DType::kI16},
    {at::kUInt16, DType::kU16},
    {at::kHalf, DType::kF16},
    {at::kBFloat16, DType::kBF16},
    {at::kInt, DType::kI32},
    {at::kUInt32, DType::kU32},
    {at::kFloat, DType::kF32},
    {at::kComplexFloat, DType::kC64},
    {at::kDouble, DType::kF64},
    {at::kLong, DType::kI64},
    {at::kUInt64, DType::kU64},
}};

// What makes two tensors the same memory seen the same way.
auto identity(const at::Tensor& tensor) {
  return std::tuple(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.scalar_type(),
                    tensor.sizes().vec(), tensor.strides().vec(), tensor.is_conj(), tensor.is_neg());
}

}  // namespace

DType storable_dtype(const std::string& name, const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& why) {
    return std::invalid_argument("tensor " + quote_name(name) + " cannot be stored in a safetensors file: " + why);
  };
  if (!tensor.defined()) throw refuse("it is undefined");
  if (tensor.layout() != at::kStrided) throw refuse("its layout is not dense; convert it with to_dense()");
  if (tensor.is_quantized()) throw refuse("it is quantized; store int_repr(), scale and zero point instead");
  if (tensor.is_meta()) throw refuse("it is on the meta device and has no data");
  for (const auto& [scalar_type, dtype] : kScalarTypes) {
    if (tensor.scalar_type() == scalar_type) return dtype;
  }
  throw refuse(std::string("the format has no dtype for ") + c10::toString(tensor.scalar_type()));
}

void write_elements(storage::ByteSink& sink, const at::Tensor& tensor) {
  constexpr int64_t kMaxCopyBytes = int64_t{16} << 20;
  if (tensor.numel() == 0) return;
  const auto bytes = tensor.numel() * tensor.element_size();
  const bool is_plain = tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (is_plain || bytes <= kMaxCopyBytes || tensor.dim() == 0) {
    const auto copy = tensor.resolve_conj().resolve_neg().cpu().contiguous();
    sink.write(copy.const_data_ptr(), copy.nbytes());
    return;
  }
  const auto rows = std::max<int64_t>(kMaxCopyBytes / (bytes / tensor.size(0)), 1);
  for (int64_t row = 0; row < tensor.size(0); row += rows) {
    const auto count = std::min(rows, tensor.size(0) - row);
    write_elements(sink, count == 1 ? tensor.select(0, row) : tensor.narrow(0, row, count));
  }
}

namespace {

// The file's beginning, and its tensors in their order.
std::pair<std::string, std::vector<safetensors::TensorEntry>> plan(const TensorMap& tensors, const Metadata& metadata) {
  safetensors::Header header;
  header.metadata = metadata;
  std::map<decltype(identity(at::Tensor())), std::string> written;
  for (const auto& [name, tensor] : tensors) {
    const auto dtype = storable_dtype(name, tensor);
    if (tensor.numel() > 0) {
      const auto [first, is_new] = written.emplace(identity(tensor), name);
      if (!is_new) {
        if (!header.metadata.emplace(name, first->second).second) {
          throw std::invalid_argument("metadata " + quote_name(name) +
                                      " has the name of a tensor that shares memory with " + quote_name(first->second) +
                                      ", and its place is needed to say so; rename the metadata");
        }
        continue;
      }
    }
    header.tensors.push_back({.name = name, .dtype = dtype, .shape = tensor.sizes().vec()});
  }

  try {
    safetensors::assign_ranges(header.tensors);
    auto head = safetensors::format_header(header);
    return {std::move(head), std::move(header.tensors)};
  } catch (const safetensors::FormatError& error) {
    throw std::invalid_argument(error.what());
  }
}

void write_planned(storage::ByteSink& sink, const std::string& head,
                   const std::vector<safetensors::TensorEntry>& entries, const TensorMap& tensors) {
  sink.write(head.data(), head.size());
  for (const auto& entry : entries) write_elements(sink, tensors.at(entry.name));
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata) {
  const auto [head, entries] = plan(tensors, metadata);
  AtomicFile file(path);
  write_planned(file, head, entries, tensors);
  file.commit();
}

void check_safetensors(const TensorMap& tensors) {
  static_cast<void>(plan(tensors, {}));
}

void write_safetensors(storage::ByteSink& sink, const TensorMap& tensors, const Metadata& metadata) {
  const auto [head, entries] = plan(tensors, metadata);
  write_planned(sink, head, entries, tensors);
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  storage::FileSystem file_system;
  bytes_ = storage::map_file(file_system, path_);
  file_ = file_system.open(path_);
  parse();
}

SafetensorsFile::SafetensorsFile(storage::Bytes bytes, std::filesystem::path path)
    : path_(std::move(path)), bytes_(std::move(bytes)) {
  parse();
}

void SafetensorsFile::parse() {
  const auto file = bytes_.view;
  try {
    const auto header_bytes = safetensors::parse_header_length(file.substr(0, safetensors::kLengthBytes), file.size());
    data_ = file.substr(safetensors::kLengthBytes + header_bytes);
    header_ = safetensors::parse_header(file.substr(safetensors::kLengthBytes, header_bytes), data_.size());
  } catch (const safetensors::FormatError& error) {
    refuse_tensor_file(file, path_, error.what());
  }
}

at::Tensor SafetensorsFile::read(const safetensors::TensorEntry& entry) const {
  auto tensor = at::empty(entry.shape, at::TensorOptions(scalar_type(entry)));
  const auto size = entry.end - entry.begin;
  if (size == 0) return tensor;
  auto* data = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  if (file_.is_open()) {
    // Not through the mapping: a file that becomes shorter is an error here, and a signal there.
    storage::FileSystem file_system;
    const auto position = static_cast<uint64_t>(data_.data() - bytes_.view.data()) + entry.begin;
    file_system.read(file_, data, size, position, path_);
  } else {
    std::memcpy(data, data_.data() + entry.begin, size);
  }
  // Any other value in a C++ bool is undefined behaviour.
  if (entry.dtype == DType::kBool && std::any_of(data, data + size, [](uint8_t byte) { return byte > 1; })) {
    throw std::runtime_error(path_.string() + ": the BOOL tensor " + quote_name(entry.name) +
                             " holds a byte that is neither 0 nor 1");
  }
  return tensor;
}

at::Tensor SafetensorsFile::view(const safetensors::TensorEntry& entry) const {
  const auto bytes = data_.substr(entry.begin, entry.end - entry.begin);
  // Files of other writers need not be aligned.
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % safetensors::dtype_bytes(entry.dtype) == 0;
  if (bytes.empty() || !aligned || entry.dtype == DType::kBool) return read(entry);
  // The mapping is private and writable.
  return at::from_blob(
      const_cast<char*>(bytes.data()), entry.shape, [owner = bytes_.owner](void*) {},
      at::TensorOptions(scalar_type(entry)));
}

at::ScalarType scalar_type(const safetensors::TensorEntry& entry) {
  const auto found = std::find_if(kScalarTypes.begin(), kScalarTypes.end(),
                                  [&](const auto& pair) { return pair.second == entry.dtype; });
  return found->first;
}

TensorMap load_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  TensorMap tensors;
  for (const auto& entry : file.header().tensors) tensors.emplace(entry.name, file.read(entry));
  return tensors;
}

}  // namespace ddp
