#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "checkpoint/atomic_file.h"

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

// What makes two tensors the same memory seen the same way.
auto identity(const at::Tensor& tensor) {
  return std::tuple(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.scalar_type(),
                    tensor.sizes().vec(), tensor.strides().vec(), tensor.is_conj(), tensor.is_neg());
}

// Row-major bytes of `tensor`, at most one chunk of another device's memory at a time on the host.
void write_data(AtomicFile& file, const at::Tensor& tensor) {
  constexpr int64_t kChunkBytes = int64_t{16} << 20;
  if (tensor.numel() == 0) return;
  const auto flat = tensor.resolve_conj().resolve_neg().contiguous().view(-1);
  const auto chunk = flat.is_cpu() ? flat.numel() : std::max<int64_t>(1, kChunkBytes / flat.element_size());
  for (int64_t begin = 0; begin < flat.numel(); begin += chunk) {
    const auto part = flat.narrow(0, begin, std::min(chunk, flat.numel() - begin)).cpu();
    file.write(part.const_data_ptr(), part.nbytes());
  }
}

[[noreturn]] void fail_system(const char* action, const std::filesystem::path& path, int error) {
  throw std::system_error(error, std::generic_category(), std::string(action) + " " + path.string());
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata) {
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

  std::string head;
  try {
    safetensors::assign_ranges(header.tensors);
    head = safetensors::format_header(header);
  } catch (const safetensors::FormatError& error) {
    throw std::invalid_argument("cannot write " + path.string() + ": " + error.what());
  }
  AtomicFile file(path);
  file.write(head.data(), head.size());
  for (const auto& entry : header.tensors) write_data(file, tensors.at(entry.name));
  file.commit();
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) fail_system("cannot open", path_, errno);
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_system("cannot read", path_, errno);
    if (!S_ISREG(status.st_mode)) throw safetensors::FormatError("this is no regular file");
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    std::string bytes(std::min(file_bytes, safetensors::kLengthBytes), '\0');
    read_bytes(bytes.data(), bytes.size(), 0);
    const auto header_bytes = safetensors::parse_header_length(bytes, file_bytes);
    bytes.resize(header_bytes);
    read_bytes(bytes.data(), header_bytes, safetensors::kLengthBytes);
    data_position_ = safetensors::kLengthBytes + header_bytes;
    header_ = safetensors::parse_header(bytes, file_bytes - data_position_);
  } catch (const safetensors::FormatError& error) {
    ::close(descriptor_);
    throw std::runtime_error(path_.string() + " is not a valid safetensors file: " + error.what());
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  ::close(descriptor_);
}

void SafetensorsFile::read_bytes(void* data, uint64_t size, uint64_t position) const {
  constexpr uint64_t kLargestRead = uint64_t{1} << 30;
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const auto got = ::pread(descriptor_, bytes, std::min(size, kLargestRead), static_cast<off_t>(position));
    if (got < 0) {
      if (errno == EINTR) continue;
      fail_system("cannot read", path_, errno);
    }
    if (got == 0) throw std::runtime_error(path_.string() + " became shorter while it was read");
    bytes += got;
    size -= static_cast<uint64_t>(got);
    position += static_cast<uint64_t>(got);
  }
}

at::Tensor SafetensorsFile::read(const safetensors::TensorEntry& entry) const {
  auto tensor = at::empty(entry.shape, at::TensorOptions(scalar_type(entry)));
  const auto size = entry.end - entry.begin;
  if (size == 0) return tensor;
  auto* data = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  read_bytes(data, size, data_position_ + entry.begin);
  // Any other value in a C++ bool is undefined behaviour.
  if (entry.dtype == DType::kBool && std::any_of(data, data + size, [](uint8_t byte) { return byte > 1; })) {
    throw std::runtime_error(path_.string() + ": the BOOL tensor " + quote_name(entry.name) +
                             " holds a byte that is neither 0 nor 1");
  }
  return tensor;
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
