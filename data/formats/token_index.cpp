#include "data/formats/token_index.h"

#include <cstring>
#include <string>

#include <ddprun/data/byte_source.h>

namespace ddp {
namespace {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);

/// Reads little-endian numbers from the front of bytes.
class Numbers {
 public:
  Numbers(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  template <typename Integer>
  Integer get() {
    Integer value{};
    const auto piece = take(sizeof(Integer));
    std::memcpy(&value, piece.data(), sizeof(Integer));
    return value;
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) {
      throw DataError(path_, "expected " + std::to_string(size) + " further bytes of the index, got " +
                                 std::to_string(bytes_.size()) + ": it is truncated or damaged");
    }
    const auto piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }
  /// Returns the bytes of `count` numbers of `item` bytes each.
  std::string_view array(uint64_t count, uint64_t item) {
    if (count <= bytes_.size() / item) return take(count * item);
    throw DataError(path_, "expected " + std::to_string(count) + " numbers of " + std::to_string(item) +
                               " bytes in the rest of the index, got " + std::to_string(bytes_.size()) +
                               " bytes: it is truncated or damaged");
  }

 private:
  std::string_view bytes_;
  const std::filesystem::path& path_;
};

template <typename Integer>
Integer entry(std::string_view numbers, uint64_t index) {
  Integer value{};
  std::memcpy(&value, numbers.data() + index * sizeof(Integer), sizeof(Integer));
  return value;
}

void set_type(TokenIndex& index, int code, const std::filesystem::path& path) {
  switch (code) {
    case 1:
      index.token_bytes = 1;
      return;
    case 2:
      index.token_bytes = 1;
      index.is_signed = true;
      return;
    case 3:
      index.token_bytes = 2;
      index.is_signed = true;
      return;
    case 4:
      index.token_bytes = 4;
      index.is_signed = true;
      return;
    case 5:
      index.token_bytes = 8;
      index.is_signed = true;
      return;
    case 8:
      index.token_bytes = 2;
      return;
    default:
      throw DataError(path,
                      "expected tokens of the types uint8, int8, int16, int32, int64 or uint16 (1, 2, 3, 4, 5 "
                      "or 8), got type " +
                          std::to_string(code));
  }
}

}  // namespace

TokenIndex read_token_index(std::string_view bytes, const std::filesystem::path& path) {
  Numbers numbers(bytes, path);
  if (!bytes.starts_with(kIndexMagic)) {
    throw DataError(path, "expected a Megatron-LM index, which begins with \"MMIDIDX\", got other bytes");
  }
  numbers.take(kIndexMagic.size());
  if (const auto version = numbers.get<uint64_t>(); version != 1) {
    throw DataError(path, "expected version 1 of the index, got " + std::to_string(version));
  }
  TokenIndex index;
  set_type(index, numbers.get<uint8_t>(), path);
  const auto sequences = numbers.get<uint64_t>();
  const auto documents = numbers.get<uint64_t>();
  const auto lengths = numbers.array(sequences, sizeof(int32_t));
  const auto pointers = numbers.array(sequences, sizeof(int64_t));
  const auto first_sequences = numbers.array(documents, sizeof(int64_t));
  std::vector<int64_t> sequence_ends;
  sequence_ends.reserve(sequences);
  for (uint64_t i = 0; i < sequences; ++i) {
    const auto length = entry<int32_t>(lengths, i);
    if (length < 0 || entry<int64_t>(pointers, i) != index.tokens * index.token_bytes) {
      throw DataError(path, "sequence " + std::to_string(i) +
                                " does not begin where the one before it ends, as Megatron-LM writes them: the index "
                                "is damaged");
    }
    index.tokens += length;
    sequence_ends.push_back(index.tokens);
  }
  // The entries are the starts of the documents, and a final entry is the end of the last document.
  for (uint64_t i = 0; i < documents; ++i) {
    const auto sequence = entry<int64_t>(first_sequences, i);
    const int64_t before = i == 0 ? 0 : entry<int64_t>(first_sequences, i - 1);
    if (sequence < before || sequence > static_cast<int64_t>(sequences) || (i == 0 && sequence != 0)) {
      throw DataError(path, "document " + std::to_string(i) + " begins at sequence " + std::to_string(sequence) +
                                ", expected ascending numbers from 0 to " + std::to_string(sequences) +
                                ": the index is damaged");
    }
    const int64_t end = sequence == 0 ? 0 : sequence_ends[static_cast<size_t>(sequence) - 1];
    const int64_t last = index.document_ends.empty() ? 0 : index.document_ends.back();
    if (end > last) index.document_ends.push_back(end);
  }
  const int64_t last = index.document_ends.empty() ? 0 : index.document_ends.back();
  if (last < index.tokens) index.document_ends.push_back(index.tokens);
  return index;
}

}  // namespace ddp
