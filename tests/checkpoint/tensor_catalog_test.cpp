#include "checkpoint/shards/tensor_catalog.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "tests/checkpoint/chunked_tensors.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace ddp::shards {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::catalog_of;
using test::drawn;
using test::error_of;
using test::Random;

constexpr auto kMax = std::numeric_limits<int64_t>::max();

std::string refusal_of(TensorCatalog catalog) {
  return error_of<CatalogError>([&] { check(catalog); });
}

Box box2(int64_t row, int64_t column, int64_t rows, int64_t columns) {
  return {.offsets = {row, column}, .sizes = {rows, columns}};
}

// A grid of chunks of one element each, or of `side` by `side`.
std::vector<Box> grid(int64_t rows, int64_t columns, int64_t side = 1) {
  std::vector<Box> boxes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      boxes.push_back(box2(row * side, column * side, side, side));
    }
  }
  return boxes;
}

std::chrono::duration<double> time_of(const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::steady_clock::now() - begin;
}

// A hang, or time that grows with the square of the chunks; a quiet machine needs a tenth.
constexpr std::chrono::duration<double> kHang(20);

TEST_CASE("TensorCatalog: chunks that form their tensor are accepted, ordered, and empty ones are removed") {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto shape = test::drawn_shape(random);
    auto catalog =
        catalog_of(shape, test::drawn_division(random, whole(shape), static_cast<int>(drawn(random, 1, 40))));
    REQUIRE_NOTHROW(check(catalog));
    const auto& chunks = catalog.tensors.at("w").chunks;
    REQUIRE(std::ranges::is_sorted(chunks, {}, [](const Chunk& chunk) { return chunk.box.offsets; }));
    int64_t elements = 0;
    for (const auto& chunk : chunks) {
      REQUIRE(numel(chunk.box) > 0);
      elements += numel(chunk.box);
    }
    REQUIRE(elements == numel(whole(shape)));
  }
}

TEST_CASE("TensorCatalog: each change of a division is found") {
  Random random(4);
  int changed = 0;
  for (int round = 0; round < 4000; ++round) {
    const auto shape = test::drawn_shape(random);
    auto boxes = test::drawn_division(random, whole(shape), static_cast<int>(drawn(random, 1, 40)));
    std::erase_if(boxes, [](const Box& box) { return numel(box) == 0; });
    if (boxes.empty()) continue;
    const auto which = static_cast<size_t>(drawn(random, 0, static_cast<int64_t>(boxes.size()) - 1));
    auto& box = boxes[which];
    const auto what = drawn(random, 0, 3);
    if (what == 0) {
      boxes.erase(boxes.begin() + static_cast<ptrdiff_t>(which));
    } else if (what == 1) {
      boxes.push_back(Box(box));
    } else if (!shape.empty()) {
      const auto i = static_cast<size_t>(drawn(random, 0, static_cast<int64_t>(shape.size()) - 1));
      auto& number = what == 2 ? box.offsets[i] : box.sizes[i];
      number += drawn(random, 0, 1) == 0 ? -1 : 1;
    } else {
      continue;
    }
    ++changed;
    INFO(round);
    REQUIRE_THAT(refusal_of(catalog_of(shape, boxes)), ContainsSubstring("the tensor 'w'"));
  }
  CHECK(changed > 2000);
}

TEST_CASE("TensorCatalog: holes are named") {
  CHECK_THAT(refusal_of(catalog_of({10, 3}, {box2(0, 0, 5, 3), box2(7, 0, 3, 3)})),
             ContainsSubstring("24 elements") && ContainsSubstring("asks for 30; row 5 is missing"));
  CHECK_THAT(refusal_of(catalog_of({10, 3}, {box2(7, 0, 3, 3), box2(0, 0, 7, 2)})),
             ContainsSubstring("is not complete"));
  CHECK_THAT(refusal_of(catalog_of({10}, {})), ContainsSubstring("row 0 is missing"));
  CHECK_THAT(refusal_of(catalog_of({10}, {{.offsets = {0}, .sizes = {9}}})), ContainsSubstring("row 9 is missing"));
  CHECK_THAT(refusal_of(catalog_of({}, {})), ContainsSubstring("is not complete"));
}

TEST_CASE("TensorCatalog: overlaps and duplicates are named with both chunks and files") {
  auto catalog = catalog_of({4, 6}, {box2(0, 0, 2, 6), box2(1, 0, 1, 6), box2(3, 0, 1, 6)});
  catalog.files.push_back("folder/b.safetensors");
  catalog.tensors.at("w").chunks[1].file = 1;
  CHECK_THAT(refusal_of(catalog), test::ContainsAll({"stored twice in part", "[0, 0] of shape [2, 6] in a.safetensors",
                                                     "[1, 0] of shape [1, 6] in b.safetensors"}));
  CHECK_THAT(refusal_of(catalog_of({4, 6}, {box2(0, 0, 4, 6), box2(0, 0, 4, 6)})), ContainsSubstring("stored twice"));
  CHECK_THAT(refusal_of(catalog_of({}, {Box{}, Box{}})),
             ContainsSubstring("stored twice") && ContainsSubstring("a.saf"));
  UNSCOPED_INFO("as many elements as the tensor has");
  CHECK_THAT(refusal_of(catalog_of({4}, {{.offsets = {0}, .sizes = {2}}, {.offsets = {1}, .sizes = {2}}})),
             ContainsSubstring("stored twice"));
}

TEST_CASE("TensorCatalog: what is not inside of the tensor is refused") {
  for (const auto& box : {box2(0, 0, 5, 6), box2(0, 1, 4, 6), box2(-1, 0, 1, 6), box2(0, 0, -1, 6), box2(5, 0, 0, 6),
                          box2(kMax, 0, kMax, 6), Box{}, Box{.offsets = {0}, .sizes = {24}}}) {
    CHECK_THAT(refusal_of(catalog_of({4, 6}, {box})),
               ContainsSubstring("[4, 6] does not contain") && ContainsSubstring("in a.safetensors"));
  }
  CHECK_THAT(refusal_of(catalog_of({}, {{.offsets = {0}, .sizes = {1}}})), ContainsSubstring("does not contain"));
}

TEST_CASE("TensorCatalog: shapes that overflow are refused, also beside a size of 0") {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kMax},
                                            {kMax / 4 + 1},
                                            {kMax, kMax},
                                            {int64_t{1} << 31, int64_t{1} << 31},
                                            {0, kMax, kMax},
                                            {kMax, 0, kMax},
                                            {kMax, kMax, 0},
                                            {-1},
                                            {-1, -1},
                                            {0, -1},
                                            {-1, 0}}) {
    CAPTURE(shape);
    CHECK_THAT(refusal_of(catalog_of(shape, {})), ContainsSubstring("which is too large for any memory"));
  }
  auto catalog = catalog_of({kMax / 4, 0}, {});
  CHECK_NOTHROW(check(catalog));
}

TEST_CASE("TensorCatalog: the elements of many large chunks do not overflow") {
  auto catalog = catalog_of({kMax}, {});
  auto& tensor = catalog.tensors.at("w");
  tensor.dtype = "uint8";
  const Chunk all{.box = whole({kMax}), .begin = 0, .size = static_cast<uint64_t>(kMax)};
  tensor.chunks = {all};
  CHECK_NOTHROW(check(catalog));
  tensor.chunks = {all, all, all};
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("stored twice"));
}

TEST_CASE("TensorCatalog: the bytes of a chunk fit its elements") {
  auto catalog = catalog_of({4, 6}, {whole({4, 6})});
  auto& chunk = catalog.tensors.at("w").chunks[0];
  chunk.size = 95;
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("needs 96 bytes") && ContainsSubstring("but has 95"));
  chunk.size = 97;
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("but has 97"));
  chunk.form = ChunkForm::kTorchSave;
  CHECK_NOTHROW(check(catalog));
  chunk.size = 95;
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("but has 95"));
  chunk.size = 96;
  chunk.begin = std::numeric_limits<uint64_t>::max() - 95;
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("the tensor 'w' has the chunk at [0, 0] of shape [4, 6]") &&
                                      ContainsSubstring("beyond the largest position"));
  chunk.begin = 0;
  chunk.file = 1;
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("has a chunk that is in none of the files"));
}

TEST_CASE("TensorCatalog: unknown dtypes are refused") {
  auto catalog = catalog_of({4, 6}, {whole({4, 6})});
  for (const auto* dtype : {"", "float", "torch.float32", "quint8", "bits8", "F32", "\x1b[2J"}) {
    catalog.tensors.at("w").dtype = dtype;
    CHECK_THAT(refusal_of(catalog), ContainsSubstring("has the dtype") && !ContainsSubstring("\x1b"));
  }
}

TEST_CASE("TensorCatalog: a catalog without tensors, and tensors without elements") {
  TensorCatalog none;
  CHECK_NOTHROW(check(none));
  auto catalog = catalog_of({0, 6}, {whole({0, 6}), whole({0, 6}), box2(0, 3, 0, 2)});
  CHECK_NOTHROW(check(catalog));
  CHECK(catalog.tensors.at("w").chunks.empty());
}

TEST_CASE("TensorCatalog: a thousand by a thousand chunks take time in proportion to their number") {
  Random random(5);
  // In order, by columns, and in no order.
  const auto [side, how] = GENERATE(std::pair(400, 0), std::pair(400, 1), std::pair(1000, 2));
  auto boxes = grid(side, side, 3);
  if (how == 1) std::ranges::stable_sort(boxes, {}, [](const Box& box) { return box.offsets[1]; });
  if (how == 2) std::shuffle(boxes.begin(), boxes.end(), random);
  auto catalog = catalog_of({3 * side, 3 * side}, boxes);
  CHECK(time_of([&] { check(catalog); }) < kHang);
  auto& chunks = catalog.tensors.at("w").chunks;
  CHECK(chunks.size() == boxes.size());
  chunks.pop_back();
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("is not complete"));
  chunks.push_back(chunks[chunks.size() / 2]);
  CHECK_THAT(refusal_of(catalog), ContainsSubstring("stored twice"));
}

TEST_CASE("TensorCatalog: many chunks along one dimension, whichever it is") {
  for (size_t dimension = 0; dimension < 3; ++dimension) {
    constexpr int64_t kCount = 200'000;
    std::vector<int64_t> shape = {2, 2, 2};
    shape[dimension] = kCount;
    std::vector<Box> boxes;
    for (int64_t i = 0; i < kCount; ++i) {
      auto box = whole(shape);
      box.offsets[dimension] = kCount - 1 - i;
      box.sizes[dimension] = 1;
      boxes.push_back(std::move(box));
    }
    auto catalog = catalog_of(shape, boxes);
    CHECK(time_of([&] { check(catalog); }) < kHang);
  }
}

// Chunks that wind around each other as the blades of a pinwheel, within each other: no plane divides them.
std::vector<Box> pinwheels(int64_t count) {
  std::vector<Box> boxes;
  const auto side = 2 * count + 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = side - 2 * i - 1;
    const auto last = side - i - 1;
    boxes.push_back(box2(i, i, 1, length));
    boxes.push_back(box2(i, last, length, 1));
    boxes.push_back(box2(last, i + 1, 1, length));
    boxes.push_back(box2(i + 1, i, length, 1));
  }
  boxes.push_back(box2(count, count, 1, 1));
  return boxes;
}

TEST_CASE("TensorCatalog: chunks that no plane divides are compared too") {
  for (const int64_t count : {1, 2, 10, 200}) {
    auto catalog = catalog_of({2 * count + 1, 2 * count + 1}, pinwheels(count));
    CHECK_NOTHROW(check(catalog));
    auto& chunks = catalog.tensors.at("w").chunks;
    chunks.back() = chunks.front();
    CHECK_THAT(refusal_of(catalog), ContainsSubstring("stored twice"));
  }
}

TEST_CASE("TensorCatalog: catalogs that are made to take long are refused soon") {
  std::vector<Box> boxes;
  std::vector<int64_t> shape;
  SECTION("no plane divides them") {
    constexpr int64_t kCount = 100'000;
    boxes = pinwheels(kCount);
    shape = {2 * kCount + 1, 2 * kCount + 1};
  }
  SECTION("each plane divides one chunk from all others") {
    constexpr int64_t kCount = 400'000;
    shape = {kCount, kCount};
    for (int64_t i = 0; i < kCount / 2; ++i) {
      boxes.push_back(box2(2 * i, 2 * i, 1, kCount - 2 * i));
      boxes.push_back(box2(2 * i + 1, 2 * i, kCount - 2 * i - 1, 1));
    }
  }
  SECTION("all chunks are long and narrow") {
    constexpr int64_t kCount = 50'000;
    shape = {kCount, kCount};
    for (int64_t i = 0; i < kCount; ++i) boxes.push_back(box2(0, i, i + 1, 1));
    for (int64_t i = 1; i < kCount; ++i) boxes.push_back(box2(i, 0, 1, i));
  }
  SECTION("all chunks are the same but in one element") {
    constexpr int64_t kCount = 300'000;
    shape = {kCount + 1};
    for (int64_t i = 0; i < kCount; ++i) boxes.push_back({.offsets = {i}, .sizes = {kCount / 2}});
    for (auto& box : boxes) box.sizes[0] = std::min(box.sizes[0], kCount + 1 - box.offsets[0]);
  }
  auto catalog = catalog_of(shape, boxes);
  std::string message;
  CHECK(time_of([&] { message = refusal_of(catalog); }) < kHang);
  CHECK_THAT(message, ContainsSubstring("the tensor 'w'"));
}

TEST_CASE("TensorCatalog: many tensors that are each irregular are refused soon") {
  TensorCatalog catalog = catalog_of({401, 401}, pinwheels(200));
  const auto tensor = catalog.tensors.at("w");
  for (int i = 0; i < 500; ++i) catalog.tensors["w" + std::to_string(i)] = tensor;
  CHECK(time_of([&] { refusal_of(catalog); }) < kHang);
}

}  // namespace
}  // namespace ddp::shards
