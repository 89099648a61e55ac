#include "checkpoint/shards/tensor_catalog.h"

#include <algorithm>
#include <optional>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/shards/overlap_search.h"

namespace ddp::shards {
namespace {

using safetensors::quote_name;

std::string text_of(const std::vector<int64_t>& numbers) {
  return std::string("[").append(detail::joined(numbers)).append("]");
}

// The product of the sizes; nothing when it or a stride overflows.
std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool is_empty = false;
  for (const auto size : shape) {
    if (size < 0) return std::nullopt;
    is_empty = is_empty || size == 0;
    if (__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count)) return std::nullopt;
  }
  return is_empty ? 0 : count;
}

// Steps of the search for chunks that overlap: about half a second for any catalog, and more where there are many
// chunks. One that needs more steps is refused.
constexpr int64_t kSteps = int64_t{100} << 20;
constexpr int64_t kStepsPerChunk = 64;

class Checker {
 public:
  Checker(const TensorCatalog& catalog, const std::string& name, CatalogTensor& tensor, OverlapSearch& search)
      : catalog_(catalog), name_(name), tensor_(tensor), search_(search) {}

  void run() {
    const auto* dtype = pt::dtype_by_name(tensor_.dtype);
    if (dtype == nullptr) fail("has the dtype " + quote_name(tensor_.dtype) + ", which is not supported");
    const auto elements = checked_numel(tensor_.shape);
    int64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, static_cast<int64_t>(dtype->bytes), &bytes)) {
      fail("has the shape " + text_of(tensor_.shape) + ", which is too large for any memory");
    }
    for (const auto& chunk : tensor_.chunks) check_chunk(chunk, dtype->bytes);
    std::erase_if(tensor_.chunks, [](const Chunk& chunk) { return numel(chunk.box) == 0; });
    uint64_t stored = 0;  // each chunk has at most *elements, so that this is less than 2^64
    const auto asked = static_cast<uint64_t>(*elements);
    for (const auto& chunk : tensor_.chunks) stored += stored > asked ? 0 : static_cast<uint64_t>(numel(chunk.box));
    check_apart();
    if (stored == asked) return;
    fail("is not complete: its chunks have " + std::to_string(stored) + " elements, but its shape " +
         text_of(tensor_.shape) + " asks for " + std::to_string(asked) + missing_text());
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw CatalogError("the tensor " + quote_name(name_) + " " + what);
  }

  std::string title(const Chunk& chunk) const {
    return "the chunk at " + text_of(chunk.box.offsets) + " of shape " + text_of(chunk.box.sizes) + " in " +
           catalog_.files.at(chunk.file).filename().string();
  }

  void check_chunk(const Chunk& chunk, size_t element) const {
    if (chunk.file >= catalog_.files.size()) fail("has a chunk that is in none of the files");
    if (!is_inside(chunk.box, tensor_.shape)) {
      fail("of shape " + text_of(tensor_.shape) + " does not contain " + title(chunk));
    }
    const auto bytes = static_cast<uint64_t>(numel(chunk.box)) * element;
    uint64_t end = 0;
    if (__builtin_add_overflow(chunk.begin, chunk.size, &end)) {
      fail("has " + title(chunk) + " beyond the largest position of a file");
    }
    if (chunk.form == ChunkForm::kElements ? chunk.size != bytes : chunk.size < bytes) {
      fail("needs " + std::to_string(bytes) + " bytes for " + title(chunk) + ", but has " + std::to_string(chunk.size));
    }
  }

  // Orders the chunks by their beginnings, and refuses two that have an element in common.
  void check_apart() {
    auto& chunks = tensor_.chunks;
    if (chunks.size() < 2) return;
    const auto is_before = [](const Chunk& left, const Chunk& right) { return left.box.offsets < right.box.offsets; };
    if (!std::is_sorted(chunks.begin(), chunks.end(), is_before))
      std::stable_sort(chunks.begin(), chunks.end(), is_before);
    const auto pair = search_.find(chunks);
    if (pair) fail("is stored twice in part: " + title(chunks[pair->first]) + " and " + title(chunks[pair->second]));
    if (search_.has_given_up()) fail("is in chunks that are too many and too irregular to be compared");
  }

  // "; row 5 is missing", where chunks are rows.
  std::string missing_text() const {
    int64_t row = 0;
    for (const auto& chunk : tensor_.chunks) {
      for (size_t i = 1; i < tensor_.shape.size(); ++i) {
        if (chunk.box.sizes[i] != tensor_.shape[i]) return "";
      }
      if (chunk.box.offsets.empty()) return "";
      if (chunk.box.offsets[0] != row) break;
      row += chunk.box.sizes[0];
    }
    if (tensor_.shape.empty()) return "";
    return "; row " + std::to_string(row) + " is missing";
  }

  const TensorCatalog& catalog_;
  const std::string& name_;
  CatalogTensor& tensor_;
  OverlapSearch& search_;
};

}  // namespace

void check(TensorCatalog& catalog) {
  int64_t chunks = 0;
  for (const auto& [name, tensor] : catalog.tensors) chunks += static_cast<int64_t>(tensor.chunks.size());
  OverlapSearch search(kSteps + kStepsPerChunk * chunks);
  for (auto& [name, tensor] : catalog.tensors) Checker(catalog, name, tensor, search).run();
}

}  // namespace ddp::shards
