// Plans for a large model on many ranks: what a rank computes before the first byte is read or written. The time limits
// are for hangs, and for time that grows with the square of the tensors or chunks; the times are printed.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "checkpoint/shards/chunk_reader.h"
#include "checkpoint/shards/even_share.h"
#include "checkpoint/shards/tensor_catalog.h"
#include "tests/support/catch.h"

namespace ddp::shards {
namespace {

constexpr int64_t kTensors = 100'000;
constexpr int64_t kRanks = 64;
constexpr double kHangSeconds = 60;  // seconds; a quiet machine needs less than 2 for all together

double seconds_of(const char* what, const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  std::printf("%-34s %.3f s\n", what, time.count());
  return time.count();
}

// Rows [begin, end) of `rows` that `rank` of `ranks` has, as torch.chunk() divides.
std::pair<int64_t, int64_t> rows_of(int64_t rows, int64_t rank, int64_t ranks) {
  const auto each = (rows + ranks - 1) / ranks;
  return {std::min(rows, rank * each), std::min(rows, (rank + 1) * each)};
}

std::vector<int64_t> shape_of(int64_t tensor) {
  if (tensor % 3 == 0) return {768};
  if (tensor % 1000 == 1) return {64, 3, 7, 7};
  return {768, tensor % 3 == 1 ? 768 : 3072};
}

Box rows_box(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks) {
  const auto [begin, end] = rows_of(shape[0], rank, ranks);
  auto box = whole(shape);
  box.offsets[0] = begin;
  box.sizes[0] = end - begin;
  return box;
}

TensorCatalog sharded_catalog() {
  TensorCatalog catalog;
  for (int64_t rank = 0; rank < kRanks; ++rank) catalog.files.push_back("model-" + std::to_string(rank));
  std::vector<uint64_t> positions(kRanks, 4096);
  for (int64_t i = 0; i < kTensors; ++i) {
    auto& tensor = catalog.tensors["layers." + std::to_string(i) + ".weight"];
    tensor = {.dtype = "float32", .shape = shape_of(i)};
    tensor.chunks.reserve(kRanks);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      auto box = rows_box(tensor.shape, rank, kRanks);
      const auto size = static_cast<uint64_t>(numel(box)) * 4;
      auto& position = positions[static_cast<size_t>(rank)];
      tensor.chunks.push_back(
          {.box = std::move(box), .file = static_cast<uint32_t>(rank), .begin = position, .size = size});
      position += size;
    }
  }
  return catalog;
}

TEST_CASE("ShardPlanning: reading 100,000 tensors that 64 ranks have written") {
  TensorCatalog catalog;
  seconds_of("catalog", [&] { catalog = sharded_catalog(); });
  CHECK(seconds_of("check()", [&] { check(catalog); }) < kHangSeconds);
  std::vector<ReadRequest> requests;
  const int64_t readers = GENERATE(64, 48);
  uint64_t wanted = 0;
  for (const auto& [name, tensor] : catalog.tensors) {
    auto box = rows_box(tensor.shape, 17, readers);
    wanted += static_cast<uint64_t>(numel(box)) * 4;
    requests.push_back({.name = name, .tensor = &tensor, .box = std::move(box)});
  }
  uint64_t bytes = 0;
  CHECK(seconds_of("requests of a rank", [&] { bytes = bytes_to_read(requests); }) < kHangSeconds);
  CHECK(bytes >= wanted);
  CHECK(bytes <= wanted + wanted * 3 / 5);  // a reader of 48 needs rows of two writers, with gaps between them
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%-34s %ld MiB\n", "most memory", usage.ru_maxrss / 1024);
}

TEST_CASE("ShardPlanning: the share of a rank of 100,000 tensors that 64 ranks hold") {
  std::vector<HeldTensor> tensors;
  for (int64_t i = 0; i < kTensors; ++i) {
    const auto shape = shape_of(i);
    tensors.push_back(
        {.name = "layers." + std::to_string(i) + ".weight", .dtype = "float32", .shape = shape, .box = whole(shape)});
  }
  size_t items = 0;
  CHECK(seconds_of("even_share()", [&] { items = even_share(tensors, 17, kRanks).size(); }) < kHangSeconds);
  CHECK(items >= kTensors / kRanks / 2);
  std::array<uint64_t, 2> same{};
  CHECK(seconds_of("digest()", [&] { same = digest(tensors); }) < kHangSeconds);
  CHECK(same == digest(tensors));
  CHECK(seconds_of("weights", [&] { CHECK(weight_of_parts(tensors) == weight_of_wholes(tensors)); }) < kHangSeconds);
}

}  // namespace
}  // namespace ddp::shards
