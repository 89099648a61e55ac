#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "data/datasets/npy_bytes.h"
#include "data/formats/limits.h"
#include "data/formats/mapped_file.h"
#include "data/formats/npy_header.h"
#include "data/formats/open_file.h"
#include "data/formats/zip_archive.h"
#include "ddprun/data/arrays.h"

namespace ddp {
namespace {

struct Type {
  at::ScalarType dtype;
  char kind;
  int64_t bytes;
};
constexpr std::array<Type, 14> kTypes = {{{at::kBool, 'b', 1},
                                          {at::kChar, 'i', 1},
                                          {at::kShort, 'i', 2},
                                          {at::kInt, 'i', 4},
                                          {at::kLong, 'i', 8},
                                          {at::kByte, 'u', 1},
                                          {at::kUInt16, 'u', 2},
                                          {at::kUInt32, 'u', 4},
                                          {at::kUInt64, 'u', 8},
                                          {at::kHalf, 'f', 2},
                                          {at::kFloat, 'f', 4},
                                          {at::kDouble, 'f', 8},
                                          {at::kComplexFloat, 'c', 8},
                                          {at::kComplexDouble, 'c', 16}}};

at::ScalarType dtype_of(const NpyHeader& header) {
  return std::ranges::find_if(
             kTypes, [&](const Type& type) { return type.kind == header.kind && type.bytes == header.item_bytes; })
      ->dtype;
}

std::vector<int64_t> strides_of(const NpyHeader& header) {
  std::vector<int64_t> strides(header.shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < strides.size(); ++i) {
    const size_t dimension = header.is_fortran ? i : strides.size() - 1 - i;
    strides[dimension] = stride;
    stride *= std::max<int64_t>(header.shape[dimension], 1);
  }
  return strides;
}

int64_t bytes_of(const NpyHeader& header) {
  return static_cast<int64_t>(header.count) * header.item_bytes;
}

void swap_bytes(std::span<uint8_t> bytes, const NpyHeader& header) {
  const auto item = static_cast<size_t>(header.kind == 'c' ? header.item_bytes / 2 : header.item_bytes);
  for (size_t i = 0; i < bytes.size(); i += item) std::ranges::reverse(bytes.subspan(i, item));
}

bool are_bools(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte <= 1; });
}

/// Reads the header and the elements with `read` into new memory. `require` may reject the number of elements before
/// the memory is allocated.
template <typename Read, typename Require>
at::Tensor read_array(const Read& read, const Require& require, const std::filesystem::path& path) {
  const NpyHeader header = read_npy_header(read, path);
  require(static_cast<uint64_t>(bytes_of(header)));
  at::Tensor tensor = at::empty_strided(header.shape, strides_of(header), at::TensorOptions().dtype(dtype_of(header)));
  const std::span bytes(static_cast<uint8_t*>(tensor.mutable_data_ptr()), static_cast<size_t>(bytes_of(header)));
  constexpr size_t kAtOnce = size_t{1} << 24;  // memory is allocated as the bytes arrive
  for (size_t at = 0; at < bytes.size(); at += kAtOnce) read(bytes.subspan(at, std::min(kAtOnce, bytes.size() - at)));
  if (header.is_big_endian) swap_bytes(bytes, header);
  if (header.kind == 'b') {
    for (uint8_t& byte : bytes) byte = byte != 0 ? 1 : 0;  // other values of a bool are undefined behaviour
  }
  return tensor;
}

/// Returns a tensor that uses the mapped bytes, which begin with a header.
at::Tensor view_array(std::span<uint8_t> bytes, const std::shared_ptr<void>& owner, const std::filesystem::path& path) {
  uint64_t position = 0;
  const NpyHeader header = read_npy_header(
      [&](std::span<uint8_t> out) {
        if (out.size() > bytes.size() - position) throw DataError(path, "is truncated in the header of an array");
        std::memcpy(out.data(), bytes.data() + position, out.size());
        position += out.size();
      },
      path);
  const auto size = static_cast<uint64_t>(bytes_of(header));
  if (size > bytes.size() - position) {
    throw DataError(path, "expected " + std::to_string(size) + " bytes after the array's header, got " +
                              std::to_string(bytes.size() - position) + ": the file is truncated");
  }
  if (header.is_big_endian && header.item_bytes > 1) {
    throw DataError(path, "its elements are big-endian, so it cannot be mapped: load it, which converts them");
  }
  const std::span data = bytes.subspan(position, size);
  const auto alignment = static_cast<uint64_t>(header.kind == 'c' ? header.item_bytes / 2 : header.item_bytes);
  if (reinterpret_cast<uintptr_t>(data.data()) % alignment != 0) {
    throw DataError(path, "its elements are not at a multiple of their size, so they cannot be mapped: load them");
  }
  if (header.kind == 'b' && !are_bools(data)) {
    throw DataError(path,
                    "has bool values other than 0 and 1, so it cannot be mapped: load it, which converts them to 1");
  }
  const auto options = at::TensorOptions().dtype(dtype_of(header));
  if (data.empty()) return at::empty_strided(header.shape, strides_of(header), options);
  return at::from_blob(
      data.data(), header.shape, strides_of(header), [owner](void*) {}, options);
}

/// The header and elements of a tensor in the format of numpy.save. `dense` keeps the elements alive.
struct Written {
  std::string header;
  at::Tensor dense;
  std::string_view elements() const {
    return {static_cast<const char*>(dense.const_data_ptr()), static_cast<size_t>(dense.nbytes())};
  }
};

Written written(const at::Tensor& tensor) {
  const auto refuse = [](const std::string& problem) {
    throw std::invalid_argument("save_npy: expected a dense tensor of a dtype that NumPy has, got " + problem);
  };
  if (!tensor.defined()) refuse("an undefined one");
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) refuse("one that is sparse or quantized");
  const auto found = std::ranges::find(kTypes, tensor.scalar_type(), &Type::dtype);
  if (found == kTypes.end()) {
    refuse(std::string(c10::toString(tensor.scalar_type())) + ": convert it first, such as with .to(torch::kFloat)");
  }
  const at::Tensor host = tensor.detach().cpu().resolve_conj().resolve_neg();
  // An array in Fortran order becomes contiguous if its dimensions are reversed.
  std::vector<int64_t> reversed(static_cast<size_t>(host.dim()));
  for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = host.dim() - 1 - static_cast<int64_t>(i);
  const bool is_fortran = !host.is_contiguous() && host.permute(reversed).is_contiguous();
  const NpyHeader header{
      .kind = found->kind, .item_bytes = found->bytes, .is_fortran = is_fortran, .shape = host.sizes().vec()};
  return {.header = npy_header(header), .dense = is_fortran ? host.permute(reversed) : host.contiguous()};
}

}  // namespace

at::Tensor load_npy(const std::filesystem::path& file) {
  return with_data_errors(file, [&] {
    ByteSource source(file);
    return read_array([&](std::span<uint8_t> bytes) { source.read(bytes); },
                      [&](uint64_t bytes) { source.require(bytes); }, file);
  });
}

at::Tensor npy_of_bytes(std::span<const uint8_t> bytes, const std::filesystem::path& path) {
  const auto require = [&](uint64_t count) {
    if (count <= bytes.size()) return;
    throw DataError(path, "expected " + std::to_string(count) + " further bytes, got " + std::to_string(bytes.size()) +
                              ": it is truncated");
  };
  const auto read = [&](std::span<uint8_t> out) {
    require(out.size());
    std::ranges::copy(bytes.first(out.size()), out.begin());
    bytes = bytes.subspan(out.size());
  };
  return with_data_errors(path, [&] { return read_array(read, require, path); });
}

at::Tensor map_npy(const std::filesystem::path& file) {
  return with_data_errors(file, [&] {
    const MappedFile mapped(file);
    return view_array({mapped.data(), static_cast<size_t>(mapped.size())}, mapped.owner(), file);
  });
}

void save_npy(const std::filesystem::path& file, const at::Tensor& tensor) {
  const Written array = written(tensor);
  ReplacedFile out(file);
  out.write(array.header);
  out.write(array.elements());
  out.commit();
}

struct NpzFile::Content {
  explicit Content(const std::filesystem::path& file) : mapped(file) {
    constexpr std::string_view kSuffix = ".npy";
    for (ZipMember& member : read_zip_directory(mapped.bytes(), file)) {
      if (!member.name.ends_with(kSuffix)) continue;
      names.push_back(member.name.substr(0, member.name.size() - kSuffix.size()));
      members.push_back(std::move(member));
    }
  }

  const ZipMember& member(const std::string& name) const {
    const auto found = std::ranges::find(names, name);
    if (found != names.end()) return members[static_cast<size_t>(found - names.begin())];
    std::string known;
    for (const auto& other : names) known += (known.empty() ? "" : ", ") + other;
    throw std::out_of_range(mapped.path().string() + ": has no array '" + name + "', only: " + known);
  }

  /// The location that errors name: the file and the array in it.
  std::filesystem::path place(const std::string& name) const { return mapped.path() / (name + ".npy"); }

  MappedFile mapped;
  std::vector<std::string> names{};
  std::vector<ZipMember> members{};
};

NpzFile::NpzFile(const std::filesystem::path& file)
    : content_(with_data_errors(file, [&] { return std::make_shared<const Content>(file); })) {}

const std::vector<std::string>& NpzFile::names() const {
  return content_->names;
}

bool NpzFile::contains(const std::string& name) const {
  return std::ranges::find(content_->names, name) != content_->names.end();
}

at::Tensor NpzFile::at(const std::string& name) const {
  const ZipMember& member = content_->member(name);
  const auto place = content_->place(name);
  return with_data_errors(place, [&] {
    ZipMemberReader reader(member, place);
    at::Tensor tensor = read_array([&](std::span<uint8_t> bytes) { reader.read(bytes); },
                                   [&](uint64_t bytes) {
                                     if (bytes <= member.size) return;
                                     throw DataError(place, "expected " + std::to_string(bytes) +
                                                                " bytes of elements, but the member has " +
                                                                std::to_string(member.size) + ": it is damaged");
                                   },
                                   place);
    reader.finish();
    return tensor;
  });
}

at::Tensor NpzFile::map(const std::string& name) const {
  const ZipMember& member = content_->member(name);
  const auto place = content_->place(name);
  if (member.is_deflated) throw DataError(place, "is compressed, so it cannot be mapped: read it with at()");
  const auto begin = static_cast<size_t>(member.packed.data() - content_->mapped.bytes().data());
  return with_data_errors(place, [&] {
    return view_array({content_->mapped.data() + begin, member.packed.size()}, content_->mapped.owner(), place);
  });
}

std::map<std::string, at::Tensor> load_npz(const std::filesystem::path& file) {
  const NpzFile content(file);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& name : content.names()) tensors.emplace(name, content.at(name));
  return tensors;
}

void save_npz(const std::filesystem::path& file, const std::map<std::string, at::Tensor>& tensors, bool compressed) {
  constexpr size_t kMaxName = 65'000;
  ReplacedFile out(file);
  ZipWriter zip(out);
  for (const auto& [name, tensor] : tensors) {
    if (name.empty() || name.size() > kMaxName) {
      throw std::invalid_argument("save_npz: expected a name of 1 to 65000 bytes, got one of " +
                                  std::to_string(name.size()));
    }
    const Written array = written(tensor);
    zip.add(name + ".npy", {array.header, array.elements()}, compressed);
  }
  zip.finish();
  out.commit();
}

}  // namespace ddp
