#include "checkpoint/shards/tensor_catalog.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"
#include "checkpoint/pt/dtypes.h"

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

// Chunks are compared along one dimension after the other; a catalog that needs more comparisons is refused.
constexpr int64_t kMostComparisons = int64_t{200} << 20;

class Checker {
 public:
  Checker(const TensorCatalog& catalog, const std::string& name, CatalogTensor& tensor, int64_t& comparisons)
      : catalog_(catalog), name_(name), tensor_(tensor), comparisons_(comparisons) {}

  void run() {
    const auto* dtype = pt::dtype_by_name(tensor_.dtype);
    if (dtype == nullptr) fail("has the dtype " + tensor_.dtype + ", which is not read");
    const auto elements = checked_numel(tensor_.shape);
    int64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, static_cast<int64_t>(dtype->bytes), &bytes)) {
      fail("has the shape " + text_of(tensor_.shape) + ", which no memory holds");
    }
    for (const auto& chunk : tensor_.chunks) check_chunk(chunk, dtype->bytes);
    std::erase_if(tensor_.chunks, [](const Chunk& chunk) { return numel(chunk.box) == 0; });
    int64_t stored = 0;
    for (const auto& chunk : tensor_.chunks) stored += stored > *elements ? 0 : numel(chunk.box);
    check_apart();
    if (stored == *elements) return;
    fail("is not complete: its chunks have " + std::to_string(stored) + " elements, but its shape " +
         text_of(tensor_.shape) + " asks for " + std::to_string(*elements) + hole());
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
    if (chunk.file >= catalog_.files.size()) fail("has a chunk in no file");
    if (!is_inside(chunk.box, tensor_.shape)) {
      fail("of shape " + text_of(tensor_.shape) + " does not contain " + title(chunk));
    }
    const auto bytes = static_cast<uint64_t>(numel(chunk.box)) * element;
    uint64_t end = 0;
    if (__builtin_add_overflow(chunk.begin, chunk.size, &end)) fail(title(chunk) + " ends nowhere");
    if (chunk.form == ChunkForm::kElements ? chunk.size != bytes : chunk.size < bytes) {
      fail("needs " + std::to_string(bytes) + " bytes for " + title(chunk) + ", but has " + std::to_string(chunk.size));
    }
  }

  // The dimension along which the chunks begin at most places: sorted by it, few chunks overlap in it.
  size_t best_dimension() const {
    size_t best = 0;
    size_t most = 0;
    std::vector<int64_t> begins(tensor_.chunks.size());
    for (size_t dimension = 0; dimension < tensor_.shape.size(); ++dimension) {
      std::transform(tensor_.chunks.begin(), tensor_.chunks.end(), begins.begin(),
                     [&](const Chunk& chunk) { return chunk.box.offsets[dimension]; });
      std::sort(begins.begin(), begins.end());
      const auto different = static_cast<size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
      if (different > most) best = dimension;
      most = std::max(most, different);
    }
    return best;
  }

  // Orders the chunks by their beginnings, and refuses two that have an element in common.
  void check_apart() {
    auto& chunks = tensor_.chunks;
    if (chunks.size() < 2) return;
    if (tensor_.shape.empty()) fail("has no dimensions, but " + std::to_string(chunks.size()) + " chunks");
    const auto dimension = best_dimension();
    const auto begin = [&](const Chunk& chunk) { return chunk.box.offsets[dimension]; };
    std::stable_sort(chunks.begin(), chunks.end(),
                     [&](const Chunk& left, const Chunk& right) { return begin(left) < begin(right); });
    std::vector<const Chunk*> open;  // that may reach the next one's beginning
    for (const auto& chunk : chunks) {
      std::erase_if(open, [&](const Chunk* each) { return begin(*each) + each->box.sizes[dimension] <= begin(chunk); });
      comparisons_ += static_cast<int64_t>(open.size());
      if (comparisons_ > kMostComparisons) fail("is in chunks that are too many and too irregular to be compared");
      for (const auto* each : open) {
        if (common_part(each->box, chunk.box))
          fail("is stored twice in part: " + title(*each) + " and " + title(chunk));
      }
      open.push_back(&chunk);
    }
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const Chunk& left, const Chunk& right) { return left.box.offsets < right.box.offsets; });
  }

  // "; rows 5 to 9 are missing", where chunks are rows.
  std::string hole() const {
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
  int64_t& comparisons_;
};

}  // namespace

void check(TensorCatalog& catalog) {
  int64_t comparisons = 0;
  for (auto& [name, tensor] : catalog.tensors) Checker(catalog, name, tensor, comparisons).run();
}

}  // namespace ddp::shards
