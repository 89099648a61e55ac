#include "checkpoint/shards/even_share.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/pt/dtypes.h"
#include "tests/checkpoint/chunked_tensors.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::shards {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::drawn;
using test::Random;

constexpr int64_t kSmall = int64_t{1} << 20;

HeldTensor held(const std::string& name, const std::vector<int64_t>& shape, const std::string& dtype = "float32") {
  return {.name = name, .dtype = dtype, .shape = shape, .box = whole(shape)};
}

int64_t element_bytes(const HeldTensor& tensor) {
  return static_cast<int64_t>(pt::dtype_by_name(tensor.dtype)->bytes);
}

int64_t bytes_of(const HeldTensor& tensor) {
  return numel(tensor.box) * element_bytes(tensor);
}

// The most that a holder may have more or less than its even part.
int64_t largest_piece(const std::vector<HeldTensor>& tensors) {
  int64_t largest = 0;
  for (const auto& tensor : tensors) {
    const auto bytes = bytes_of(tensor);
    largest = std::max(largest, bytes < kSmall ? bytes : bytes / tensor.box.sizes[0]);
  }
  return largest;
}

std::vector<HeldTensor> drawn_tensors(Random& random) {
  const std::vector<std::string> dtypes = {"float32", "bool", "bfloat16", "int64", "complex128"};
  std::vector<HeldTensor> tensors;
  const auto count = drawn(random, 0, 30);
  const auto largest = drawn(random, 0, 1) == 0 ? 40 : 400;
  for (int64_t i = 0; i < count; ++i) {
    auto shape = test::drawn_shape(random, largest);
    auto& tensor =
        tensors.emplace_back(held("t" + std::to_string(i), shape, dtypes[static_cast<size_t>(drawn(random, 0, 4))]));
    if (drawn(random, 0, 2) == 0) tensor.box = test::drawn_part(random, tensor.box);
  }
  return tensors;
}

// Each tensor's pieces form what is held of it, in order; each share is even.
void check_shares(const std::vector<HeldTensor>& tensors, int holders) {
  std::map<size_t, std::vector<Box>> pieces;
  int64_t all = 0;
  for (const auto& tensor : tensors) all += bytes_of(tensor);
  const auto piece = largest_piece(tensors);
  for (int index = 0; index < holders; ++index) {
    const auto share = even_share(tensors, index, holders);
    int64_t bytes = 0;
    REQUIRE(std::ranges::is_sorted(share, {}, &ShareItem::tensor));
    REQUIRE(std::ranges::adjacent_find(share, {}, &ShareItem::tensor) == share.end());
    for (const auto& item : share) {
      REQUIRE(item.tensor < tensors.size());
      const auto& tensor = tensors[item.tensor];
      const auto item_bytes = numel(item.box) * element_bytes(tensor);
      REQUIRE((item.box == tensor.box || (item_bytes > 0 && bytes_of(tensor) >= kSmall)));
      bytes += item_bytes;
      pieces[item.tensor].push_back(item.box);
    }
    INFO("holder " << index << " of " << holders << " has " << bytes << " bytes of " << all);
    const auto even = static_cast<double>(all) / holders;
    REQUIRE(std::abs(static_cast<double>(bytes) - even) <= static_cast<double>(piece) * (1 + 1e-9) + 1e-9 * even);
  }
  REQUIRE(pieces.size() == tensors.size());
  for (const auto& [number, boxes] : pieces) {
    const auto& box = tensors[number].box;
    auto position = box.sizes.empty() ? 0 : box.offsets[0];
    for (const auto& each : boxes) {
      if (boxes.size() == 1) REQUIRE(each == box);
      if (boxes.size() == 1) break;
      auto rows = box;
      REQUIRE(each.offsets[0] == position);
      REQUIRE(each.sizes[0] > 0);
      position += each.sizes[0];
      rows.offsets[0] = each.offsets[0];
      rows.sizes[0] = each.sizes[0];
      REQUIRE(each == rows);
    }
    if (boxes.size() > 1) REQUIRE(position == box.offsets[0] + box.sizes[0]);
  }
}

TEST_CASE("EvenShare: all shares together are each element once, and each is an even part") {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    INFO("round " << round);
    check_shares(drawn_tensors(random), static_cast<int>(drawn(random, 1, 64)));
  }
}

TEST_CASE("EvenShare: few, large, empty and no tensors") {
  for (const int holders : {1, 2, 3, 7, 64, 1000}) {
    CAPTURE(holders);
    check_shares({}, holders);
    check_shares({held("a", {}), held("b", {}), held("c", {0}), held("d", {3, 0})}, holders);
    check_shares({held("a", {0}), held("b", {0, 5})}, holders);
    check_shares({held("a", {0}), held("b", {1 << 20}), held("c", {0})}, holders);
    check_shares({held("a", {1, 1 << 20})}, holders);
    check_shares({held("a", {1 << 18}), held("b", {(1 << 18) - 1})}, holders);
    check_shares({held("a", {int64_t{1} << 40}), held("b", {3, int64_t{1} << 36}), held("c", {1})}, holders);
    check_shares({held("a", {int64_t{1} << 57, 2, 2}), held("b", {int64_t{1} << 30, 1 << 20})}, holders);
    check_shares(std::vector<HeldTensor>(10, held("a", {7, 1 << 18})), holders);
  }
}

TEST_CASE("EvenShare: tensors and rows are not cut") {
  const auto small = held("small", {512, 511});
  CHECK(even_share({small}, 0, 2).size() + even_share({small}, 1, 2).size() == 1);
  const auto row = held("row", {1, 1 << 22});
  CHECK(even_share({row}, 0, 2).size() + even_share({row}, 1, 2).size() == 1);
  const auto large = held("large", {4, 1 << 20});
  const auto first = even_share({large}, 0, 4);
  REQUIRE(first.size() == 1);
  CHECK(first[0].box == Box{.offsets = {0, 0}, .sizes = {1, 1 << 20}});
}

TEST_CASE("EvenShare: what is wrong is refused") {
  const std::vector<HeldTensor> tensors = {held("a", {4}, "float31")};
  CHECK_THAT(test::error_of<std::invalid_argument>([&] { even_share(tensors, 0, 1); }), ContainsSubstring("float31"));
  CHECK_THROWS_AS(even_share({}, 0, 0), std::invalid_argument);
  CHECK_THROWS_AS(even_share({}, 2, 2), std::invalid_argument);
  CHECK_THROWS_AS(even_share({}, -1, 2), std::invalid_argument);
}

TEST_CASE("Digest: is equal for equal lists and another one for each difference") {
  const std::vector<HeldTensor> tensors = {held("a", {4, 6}), held("b", {4, 6}), held("c", {})};
  CHECK(digest(tensors) == digest(std::vector<HeldTensor>(tensors)));
  std::set<std::array<uint64_t, 2>> digests = {digest(tensors), digest({})};
  size_t lists = 2;
  const auto add = [&](const auto& change) {
    auto changed = tensors;
    change(changed);
    digests.insert(digest(changed));
    ++lists;
  };
  add([](auto& each) { std::swap(each[0], each[1]); });
  add([](auto& each) { each.pop_back(); });
  add([](auto& each) { each.push_back(each.back()); });
  add([](auto& each) { each[0].name = "aa"; });
  add([](auto& each) { each[0].name = ""; });
  add([](auto& each) { each[0].name = std::string("a\0", 2); });
  add([](auto& each) { each[0].name = "a12345678"; });
  add([](auto& each) { each[0].name = "a12345678" + std::string(1, '\0'); });
  add([](auto& each) { each[0].dtype = "float64"; });
  add([](auto& each) { each[0].shape = {6, 4}; });
  add([](auto& each) { each[0].shape = {24}; });
  add([](auto& each) { each[0].shape = {4, 6, 1}; });
  add([](auto& each) { each[0].box.offsets = {1, 0}; });
  add([](auto& each) { each[0].box.offsets = {0, 1}; });
  add([](auto& each) { each[0].box.sizes = {4, 5}; });
  add([](auto& each) { each[0].box.sizes = {4}; });
  // A character more in one text and less in the next.
  add([](auto& each) { each[0].name = "af", each[0].dtype = "loat32"; });
  CHECK(digests.size() == lists);
  std::set<uint64_t> halves;
  for (const auto& each : digests) halves.insert(each.begin(), each.end());
  CHECK(halves.size() == 2 * lists);
}

TEST_CASE("Weights: of disjoint parts add up to those of the tensors, and else they do not") {
  Random random(8);
  for (int round = 0; round < 500; ++round) {
    const auto count = drawn(random, 1, 10);
    const auto ranks = static_cast<size_t>(drawn(random, 1, 8));
    std::vector<HeldTensor> tensors;
    std::vector<std::vector<HeldTensor>> parts(ranks);
    std::vector<std::pair<size_t, size_t>> places;
    for (int64_t i = 0; i < count; ++i) {
      const auto& tensor = tensors.emplace_back(held("t" + std::to_string(i), test::drawn_shape(random)));
      for (auto& box : test::drawn_division(random, tensor.box, static_cast<int>(ranks))) {
        const auto rank = static_cast<size_t>(drawn(random, 0, static_cast<int64_t>(ranks) - 1));
        auto part = tensor;
        part.box = std::move(box);
        if (numel(part.box) > 0) places.emplace_back(rank, parts[rank].size());
        parts[rank].push_back(std::move(part));
      }
    }
    const auto sum = [&] {
      uint64_t weight = 0;
      for (const auto& each : parts) weight += weight_of_parts(each);
      return weight;
    };
    REQUIRE(sum() == weight_of_wholes(tensors));
    if (places.empty()) continue;
    const auto [rank, place] = places[static_cast<size_t>(drawn(random, 0, static_cast<int64_t>(places.size()) - 1))];
    const auto part = parts[rank][place];
    parts[rank][place].name = "another";
    REQUIRE(sum() != weight_of_wholes(tensors));
    parts[rank][place] = part;
    parts[rank].push_back(part);
    REQUIRE(sum() != weight_of_wholes(tensors));
    parts[rank].pop_back();
    parts[rank].erase(parts[rank].begin() + static_cast<ptrdiff_t>(place));
    REQUIRE(sum() != weight_of_wholes(tensors));
  }
}

TEST_CASE("HeldTensor: is whole or not") {
  auto tensor = held("a", {4, 6});
  CHECK(tensor.is_whole());
  tensor.box.sizes = {4, 5};
  CHECK_FALSE(tensor.is_whole());
  CHECK(held("a", {}).is_whole());
  CHECK(held("a", {0, 3}).is_whole());
}

}  // namespace
}  // namespace ddp::shards
