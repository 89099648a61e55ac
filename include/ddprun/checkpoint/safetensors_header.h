// The header of a safetensors file: which tensors it holds, where, and string metadata. Parsing and formatting only,
// from and to bytes in memory; no LibTorch and no I/O. Format: https://huggingface.co/docs/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

/// Strings stored beside the tensors.
using Metadata = std::map<std::string, std::string>;

namespace safetensors {

/// Element types of the format that LibTorch has too, in the reference writer's order: a file holds the last ones
/// first, so that every tensor is aligned to its element.
enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// The format's name of `dtype`, e.g. "BF16".
std::string_view dtype_name(DType dtype);

/// Bytes per element.
size_t dtype_bytes(DType dtype);

/// One tensor of a file.
struct TensorEntry {
  std::string name;                 ///< as in the file
  DType dtype = DType::kF32;        ///< type of its elements
  std::vector<int64_t> shape = {};  ///< empty for a tensor without dimensions
  uint64_t begin = 0;               ///< first byte, counted from the end of the header
  uint64_t end = 0;                 ///< one past the last byte
};

/// The content of a file's header.
struct Header {
  std::vector<TensorEntry> tensors;  ///< by position in the file
  Metadata metadata;                 ///< strings stored beside the tensors
};

/// Thrown for bytes that are not a valid header; the message names the tensor and the rule, not the file.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Longest header that readers of the format accept.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
/// The header is preceded by its length: a little-endian 64-bit integer.
inline constexpr uint64_t kLengthBytes = 8;

/// The header's length from the first bytes of a file of `file_bytes`. Throws FormatError when the file cannot hold it.
uint64_t parse_header_length(std::string_view first_bytes, uint64_t file_bytes);

/// Parses a header that is followed by `data_bytes` of data. Throws FormatError unless the tensors have unique names
/// and known dtypes, each range has exactly the length that dtype and shape require, and the ranges cover the data
/// without gaps or overlaps. It allocates at most a small multiple of the size of `json`, whatever numbers `json`
/// contains.
Header parse_header(std::string_view json, uint64_t data_bytes);

/// Orders `tensors` as the reference writer does and sets their ranges. Throws FormatError when sizes overflow.
void assign_ranges(std::vector<TensorEntry>& tensors);

/// Returns the beginning of a file: the length and the header, padded with spaces to a multiple of 8. Throws
/// FormatError when a name is not valid UTF-8 or the header would exceed kMaxHeaderBytes.
std::string format_header(const Header& header);

/// `name` in quotes for an error message, valid UTF-8: control characters and bytes that are not UTF-8 escaped, long
/// names cut between two characters.
std::string quote_name(std::string_view name);

}  // namespace safetensors
}  // namespace ddp
