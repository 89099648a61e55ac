#include "checkpoint/shards/box.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "tests/checkpoint/chunked_tensors.h"
#include "tests/support/catch.h"

namespace ddp::shards {
namespace {

using test::drawn_part;
using test::drawn_shape;
using test::for_each_place;
using test::linear;
using test::Random;

constexpr auto kLargest = std::numeric_limits<int64_t>::max();

std::vector<int64_t> relative(std::vector<int64_t> place, const Box& box) {
  for (size_t i = 0; i < place.size(); ++i) place[i] -= box.offsets[i];
  return place;
}

std::vector<int64_t> list_of(const auto& numbers) {
  return {numbers.begin(), numbers.end()};
}

TEST_CASE("Box: the whole tensor") {
  CHECK(numel(whole({})) == 1);
  CHECK(numel(whole({3})) == 3);
  CHECK(numel(whole({3, 0, 2})) == 0);
  CHECK(numel(whole({2, 3, 5, 7, 1})) == 210);
  CHECK(whole({4, 6}) == Box{.offsets = {0, 0}, .sizes = {4, 6}});
  CHECK(whole({4, 6, 2}) != Box{.offsets = {0, 0, 0}, .sizes = {4, 6, 1}});
  CHECK(whole({4}) != whole({4, 1}));
}

TEST_CASE("Box: inside of a shape or not") {
  CHECK(is_inside({}, {}));
  CHECK(is_inside({.offsets = {2, 0}, .sizes = {2, 6}}, {4, 6}));
  CHECK(is_inside({.offsets = {4, 6}, .sizes = {0, 0}}, {4, 6}));
  CHECK(is_inside({.offsets = {0}, .sizes = {kLargest}}, {kLargest}));
  CHECK_FALSE(is_inside({}, {4}));
  CHECK_FALSE(is_inside({.offsets = {0}, .sizes = {4}}, {}));
  CHECK_FALSE(is_inside({.offsets = {0, 0}, .sizes = {4}}, {4, 1}));
  CHECK_FALSE(is_inside({.offsets = {0}, .sizes = {5}}, {4}));
  CHECK_FALSE(is_inside({.offsets = {5}, .sizes = {0}}, {4}));
  CHECK_FALSE(is_inside({.offsets = {-1}, .sizes = {2}}, {4}));
  CHECK_FALSE(is_inside({.offsets = {2}, .sizes = {-1}}, {4}));
  CHECK_FALSE(is_inside({.offsets = {kLargest}, .sizes = {kLargest}}, {kLargest}));
  CHECK_FALSE(is_inside({.offsets = {1}, .sizes = {kLargest}}, {kLargest}));
}

TEST_CASE("Box: copies and moves keep their numbers") {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4, 5}}) {
    Box box = whole(shape);
    const Box copy = box;
    Box moved = std::move(box);
    CHECK(moved == copy);
    box = copy;
    CHECK(box == copy);
    moved = whole({7, 8, 9});
    moved = std::move(box);
    CHECK(list_of(moved.sizes) == shape);
  }
}

TEST_CASE("Box: the common part has the elements that both have") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto shape = drawn_shape(random);
    const auto left = drawn_part(random, whole(shape));
    const auto right = drawn_part(random, whole(shape));
    std::set<std::vector<int64_t>> both;
    std::set<std::vector<int64_t>> of_left;
    for_each_place(left, [&](const auto& place) { of_left.insert(place); });
    for_each_place(right, [&](const auto& place) {
      if (of_left.contains(place)) both.insert(place);
    });
    const auto part = common_part(left, right);
    REQUIRE(part.has_value() == !both.empty());
    REQUIRE(common_part(right, left) == part);
    if (!part) continue;
    std::set<std::vector<int64_t>> found;
    for_each_place(*part, [&](const auto& place) { found.insert(place); });
    REQUIRE(found == both);
    REQUIRE(numel(*part) == static_cast<int64_t>(both.size()));
  }
}

TEST_CASE("Runs: copy what a copy of single elements copies, in order") {
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    const auto shape = drawn_shape(random);
    const auto part = drawn_part(random, whole(shape));
    // Boxes around the part.
    const auto around = [&] {
      Box box = part;
      for (size_t i = 0; i < shape.size(); ++i) {
        const auto begin = test::drawn(random, 0, 1) == 0 ? part.offsets[i] : test::drawn(random, 0, part.offsets[i]);
        const auto least = part.offsets[i] + part.sizes[i];
        const auto end = test::drawn(random, 0, 1) == 0 ? least : test::drawn(random, least, shape[i]);
        box.offsets[i] = begin;
        box.sizes[i] = end - begin;
      }
      return box;
    };
    const auto from = around();
    const auto to = around();
    std::vector<std::pair<int64_t, int64_t>> expected;
    for_each_place(part, [&](const auto& place) {
      expected.emplace_back(linear(relative(place, from), list_of(from.sizes)),
                            linear(relative(place, to), list_of(to.sizes)));
    });
    const Runs runs(part, from, to);
    std::vector<std::pair<int64_t, int64_t>> found;
    std::optional<Runs::Run> last;
    for (int64_t i = 0; i < runs.size(); ++i) {
      const auto run = runs[i];
      REQUIRE(run.count > 0);
      if (last) REQUIRE((run.from >= last->from + last->count && run.to >= last->to + last->count));
      last = run;
      for (int64_t k = 0; k < run.count; ++k) found.emplace_back(run.from + k, run.to + k);
    }
    REQUIRE(found == expected);
    const auto gap = test::drawn(random, 0, 20);
    const auto neighbours = runs.neighbours(gap);
    REQUIRE(neighbours >= 1);
    for (int64_t i = 1; i < runs.size(); ++i) {
      const auto is_near = runs[i].from - runs[i - 1].from - runs[i - 1].count <= gap;
      REQUIRE(is_near == (i % neighbours != 0));
    }
    if (runs.size() > 0) REQUIRE(runs.size() % neighbours == 0);
  }
}

TEST_CASE("Runs: are as long as rows allow") {
  CHECK(Runs(whole({}), whole({}), whole({})).size() == 1);
  CHECK(Runs(whole({4, 6}), whole({4, 6}), whole({4, 6})).size() == 1);
  UNSCOPED_INFO("rows of both");
  CHECK(Runs({.offsets = {1, 0}, .sizes = {2, 6}}, whole({4, 6}), {.offsets = {1, 0}, .sizes = {2, 6}}).size() == 1);
  UNSCOPED_INFO("columns");
  CHECK(Runs({.offsets = {0, 1}, .sizes = {4, 2}}, whole({4, 6}), {.offsets = {0, 1}, .sizes = {4, 2}}).size() == 4);
  UNSCOPED_INFO("dimensions of one element");
  CHECK(Runs({.offsets = {2, 0, 0, 0}, .sizes = {1, 1, 4, 6}}, whole({4, 1, 4, 6}), whole({4, 1, 4, 6})).size() == 1);
  UNSCOPED_INFO("nothing");
  CHECK(Runs({.offsets = {0, 0}, .sizes = {0, 2}}, whole({4, 6}), whole({4, 6})).size() == 0);
  CHECK(Runs({.offsets = {0, 0}, .sizes = {4, 0}}, whole({4, 6}), whole({4, 6})).size() == 0);
}

}  // namespace
}  // namespace ddp::shards
