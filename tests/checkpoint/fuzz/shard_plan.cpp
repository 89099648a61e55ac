// Catalogs of a tensor's chunks. Where elements can be counted, check() must accept those alone that have each element
// in one chunk.
//
// An input is numbers, one a byte: '0' to '9', other bytes are large and negative ones. How many dimensions, the shape,
// and for each chunk its offsets, its sizes and whether its place in the file is right.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/shards/chunk_reader.h"
#include "checkpoint/shards/tensor_catalog.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp::shards;
using fuzz::require;

constexpr auto kMax = std::numeric_limits<int64_t>::max();
constexpr std::array<int64_t, 8> kOthers = {kMax,      kMax / 2,         int64_t{1} << 32, -1,
                                            -kMax - 1, int64_t{1} << 62, 1 << 20,          10};

int64_t number(fuzz::Input& input) {
  const auto byte = input.byte();
  return byte >= '0' && byte <= '9' ? byte - '0' : kOthers[byte % kOthers.size()];
}

DimVector numbers(fuzz::Input& input, size_t count) {
  DimVector result(count);
  for (auto& each : result) each = number(input);
  return result;
}

// How often each element is in a chunk, where all chunks lie in the tensor and that is not large.
std::optional<std::vector<int>> counts(const CatalogTensor& tensor) {
  constexpr int64_t kMaxElements = 10'000;
  int64_t elements = 1;
  for (const auto size : tensor.shape) {
    if (size < 0 || size > 10) return std::nullopt;
    elements *= size;
  }
  if (elements > kMaxElements) return std::nullopt;
  std::vector<int> times(static_cast<size_t>(elements), 0);
  for (const auto& chunk : tensor.chunks) {
    if (!is_inside(chunk.box, tensor.shape)) return std::nullopt;
    for (int64_t i = 0; i < numel(chunk.box); ++i) {
      auto rest = i;
      int64_t stride = 1;
      int64_t place = 0;
      for (size_t k = tensor.shape.size(); k-- > 0;) {
        place += (chunk.box.offsets[k] + rest % chunk.box.sizes[k]) * stride;
        rest /= chunk.box.sizes[k];
        stride *= tensor.shape[k];
      }
      ++times[static_cast<size_t>(place)];
    }
  }
  return times;
}

std::string seed(const std::vector<int64_t>& shape, const std::vector<Box>& boxes) {
  std::string text;
  const auto add = [&](const auto& each) {
    for (const auto number : each) text += static_cast<char>('0' + number);
  };
  add(std::vector{static_cast<int64_t>(shape.size())});
  add(shape);
  for (const auto& box : boxes) {
    add(box.offsets);
    add(box.sizes);
    text += '0';
  }
  return text;
}

std::string grid(int64_t rows, int64_t columns, int64_t side) {
  std::vector<Box> boxes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      boxes.push_back({.offsets = {row * side, column * side}, .sizes = {side, side}});
    }
  }
  return seed({rows * side, columns * side}, boxes);
}

// Chunks that wind around each other, which no plane divides.
std::string pinwheels(int64_t count) {
  std::vector<Box> boxes;
  const auto side = 2 * count + 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = side - 2 * i - 1;
    const auto last = side - i - 1;
    boxes.push_back({.offsets = {i, i}, .sizes = {1, length}});
    boxes.push_back({.offsets = {i, last}, .sizes = {length, 1}});
    boxes.push_back({.offsets = {last, i + 1}, .sizes = {1, length}});
    boxes.push_back({.offsets = {i + 1, i}, .sizes = {length, 1}});
  }
  boxes.push_back({.offsets = {count, count}, .sizes = {1, 1}});
  return seed({side, side}, boxes);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {grid(3, 3, 3),
          grid(9, 9, 1),
          grid(9, 2, 1),
          grid(2, 9, 1),
          pinwheels(1),
          pinwheels(4),
          seed({}, {Box{}}),
          seed({9}, {{.offsets = {5}, .sizes = {4}}, {.offsets = {0}, .sizes = {5}}}),
          seed({0, 9}, {}),
          seed({2, 3, 4}, {{.offsets = {0, 0, 0}, .sizes = {1, 3, 4}}, {.offsets = {1, 0, 0}, .sizes = {1, 3, 4}}})};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const auto dimensions = static_cast<size_t>(input.byte() % 8);
  TensorCatalog catalog;
  catalog.files = {"folder/a.safetensors"};
  auto& tensor = catalog.tensors["w"];
  tensor = {.dtype = "float16", .shape = numbers(input, dimensions)};
  bool is_placed = true;
  uint64_t position = 8;
  while (!input.is_empty()) {
    Chunk chunk{.box = {.offsets = numbers(input, dimensions), .sizes = numbers(input, dimensions)}, .begin = position};
    uint64_t size = 2;
    for (const auto each : chunk.box.sizes) size *= static_cast<uint64_t>(each);
    const auto fault = number(input);
    chunk.size = size + static_cast<uint64_t>(fault == 7 ? 1 : fault == -1 ? -2 : 0);
    chunk.file = fault == 8 ? 1 : 0;
    if (fault == kMax) chunk.begin = std::numeric_limits<uint64_t>::max() - size / 2;
    is_placed = is_placed && chunk.size == size && chunk.file == 0 && chunk.begin == position;
    position += size;
    tensor.chunks.push_back(std::move(chunk));
  }
  const auto times = counts(tensor);
  const bool is_complete = times && std::ranges::all_of(*times, [](int each) { return each == 1; });
  try {
    check(catalog);
  } catch (const CatalogError& error) {
    require(std::string_view(error.what()).starts_with("the tensor 'w' "), "a refusal names the tensor");
    require(!is_complete || !is_placed, "chunks that form the tensor are accepted");
    return Outcome::kRefused;
  }
  if (!times) return Outcome::kAccepted;
  require(is_complete, "each element is in one chunk");
  const std::vector<ReadRequest> requests = {{.name = "w", .tensor = &tensor, .box = whole(tensor.shape)}};
  require(bytes_to_read(requests) <= position - 8, "nothing is read twice");
  require(bytes_to_read(requests) >= 2 * times->size(), "everything is read");
  return Outcome::kAccepted;
}
