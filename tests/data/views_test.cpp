// Views of datasets: parts of one, several one behind the other, several side by side.
#include <ATen/ATen.h>

#include <atomic>
#include <stdexcept>

#include <ddprun/data/batches.h>
#include <ddprun/data/dataset_wrappers.h>
#include <ddprun/data/datasets.h>
#include <ddprun/data/loader.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using test::ElementsAre;
using Places = std::vector<int64_t>;

/// Sample i is first + i; the last batch that was given out can be looked up.
struct Counted {
  int64_t first = 0;
  int64_t count = 0;
  mutable const int64_t* given = nullptr;
  int64_t size() const { return count; }
  Places get_batch(std::span<const int64_t> indices) const {
    Places values;
    for (const int64_t index : indices) {
      if (index < 0 || index >= count) throw std::out_of_range("Counted: " + std::to_string(index));
      values.push_back(first + index);
    }
    given = values.data();
    return values;
  }
};

struct EpochCounted {
  int64_t size() const { return 5; }
  Places get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    Places values;
    for (const int64_t index : indices) values.push_back(1000 * epoch + index);
    return values;
  }
};

/// Gives the first of the share in the place of sample 1.
struct Replacing {
  int64_t size() const { return 5; }
  Places get_batch(std::span<const int64_t> indices, int64_t /*epoch*/, std::span<const int64_t> share) const {
    Places values;
    for (const int64_t index : indices) values.push_back(index == 1 ? -share.front() : index);
    return values;
  }
};

TEST_CASE("Subset: gives the dataset's own batch of the chosen samples") {
  const Counted dataset{.first = 100, .count = 10};
  const Subset part(dataset, {7, 2, 2, 9});
  CHECK(part.size() == 4);
  const Places batch = part.get_batch(Places{3, 0, 1});
  CHECK_THAT(batch, ElementsAre(109, 107, 102));
  CHECK(batch.data() == dataset.given);  // not a copy
  CHECK_THAT(part.get_batch(Places{-1, -4}), ElementsAre(109, 107));
  CHECK_THROWS_MATCHES(part.get_batch(Places{4}), std::out_of_range,
                       Message("Subset: index 4 is out of range for 4 samples"));
  CHECK_THROWS_AS(part.get_batch(Places{-5}), std::out_of_range);
  CHECK_THROWS_MATCHES(Subset(dataset, {10}).get_batch(Places{0}), std::out_of_range, Message("Counted: 10"));
  const Subset nested(part, {0, 2});
  CHECK_THAT(nested.get_batch(Places{0, 1}), ElementsAre(107, 102));
}

TEST_CASE("Subset: passes on the epoch and the rank's share, in the dataset's indices") {
  const EpochCounted by_epoch;
  CHECK_THAT(Subset(by_epoch, {4, 3}).get_batch(Places{1}, 2), ElementsAre(2003));
  STATIC_REQUIRE_FALSE(detail::ReadsWithoutEpoch<Subset<EpochCounted>>);
  STATIC_REQUIRE_FALSE(ReplacesSamples<Subset<EpochCounted>>);
  const Replacing replacing;
  const Subset part(replacing, {4, 1, 3});
  STATIC_REQUIRE(ReplacesSamples<Subset<Replacing>>);
  CHECK_THAT(part.get_batch(Places{0, 1}, 0, Places{2, 0}), ElementsAre(4, -3));
  const ConcatDataset both(replacing, part);
  CHECK_THAT(both.get_batch(Places{6, 1}, 0, Places{7, 4}), ElementsAre(-3, -4));
}

TEST_CASE("random_split: parts are disjoint, whole, and depend on the seed") {
  const Counted dataset{.count = 10};
  const auto parts = random_split(dataset, {0.5, 0.25, 0.25}, 7);
  REQUIRE(parts.size() == 3);
  const auto order = permutation(10, 7);
  CHECK(parts[0].indices() == Places(order.begin(), order.begin() + 6));  // 5, 2, 2 and one left
  CHECK(parts[2].indices() == Places(order.begin() + 8, order.end()));
  CHECK(random_split(dataset, {6, 2, 2}, 7)[1].indices() == parts[1].indices());
  CHECK(random_split(dataset, std::vector<int64_t>{6, 4}, 8)[0].indices() != parts[0].indices());
  CHECK_THROWS_AS(random_split(dataset, {6, 5}, 7), std::invalid_argument);
  CHECK_THROWS_AS(random_split(dataset, {0.5, 0.4}, 7), std::invalid_argument);
}

TEST_CASE("ConcatDataset: finds each sample in its dataset and keeps the order") {
  const Counted first{.first = 0, .count = 3}, none{.first = 50, .count = 0}, second{.first = 100, .count = 4};
  const ConcatDataset all(first, none, second);
  CHECK(all.size() == 7);
  CHECK_THAT(all.cumulative_sizes(), ElementsAre(3, 3, 7));
  CHECK_THAT(all.get_batch(Places{6, 0, 3, 2, -1, -7}), ElementsAre(103, 0, 100, 2, 103, 0));
  const Places own = all.get_batch(Places{5, 4});
  CHECK_THAT(own, ElementsAre(102, 101));
  CHECK(own.data() == second.given);  // not a copy
  CHECK(all.get_batch(Places{}).empty());
  CHECK_THROWS_MATCHES(all.get_batch(Places{7}), std::out_of_range,
                       Message("ConcatDataset: index 7 is out of range for 7 samples"));
  CHECK_THROWS_AS(all.get_batch(Places{-8}), std::out_of_range);
  const auto parts = random_split(first, {2, 1}, 0);
  const ConcatDataset whole(parts);
  Places values = whole.get_batch(Places{0, 1, 2});
  std::ranges::sort(values);
  CHECK_THAT(values, ElementsAre(0, 1, 2));
  const std::vector<Subset<Counted>> nothing;
  CHECK_THROWS_AS(ConcatDataset(nothing), std::invalid_argument);
}

TEST_CASE("ConcatDataset: puts tensors of several datasets into one batch, and says where they do not fit") {
  const TensorDataset low(at::arange(6, at::kFloat).view({3, 2}), at::arange(3));
  const TensorDataset high(at::arange(6, at::kFloat).view({3, 2}) + 100, at::arange(3) + 10);
  const ConcatDataset both(low, high);
  const Batch batch = both.get_batch(Places{5, 0, 3});
  CHECK(batch.data.equal(at::tensor({104.0F, 105.0F, 0.0F, 1.0F, 100.0F, 101.0F}).view({3, 2})));
  CHECK(batch.target.equal(at::tensor({12, 0, 10}, at::kLong)));
  const TensorDataset wide(at::zeros({2, 3}), at::zeros({2}, at::kLong));
  const ConcatDataset odd(low, wide);
  CHECK(odd.get_batch(Places{3, 4}).data.sizes() == at::IntArrayRef({2, 3}));
  CHECK_THROWS_WITH(odd.get_batch(Places{0, 3}), ContainsSubstring("float [2] and float [3]"));
}

TEST_CASE("StackDataset: no sample is replaced by one that does not belong to the others") {
  struct Replacing {
    int64_t size() const { return 5; }
    Places get_batch(std::span<const int64_t> indices, int64_t /*epoch*/, std::span<const int64_t> share) const {
      Places given(indices.begin(), indices.end());
      const auto broken = std::ranges::find(given, 2);
      if (broken == given.end()) return given;
      if (share.empty()) throw std::runtime_error("sample 2 cannot be read");
      *broken = share.front();
      return given;
    }
  };
  const Replacing replacing;
  const Counted numbers{.count = 5};
  CHECK_THAT(ConcatDataset(replacing, replacing).get_batch(Places{2}, 0, Places{4}), ElementsAre(4));
  const StackDataset pairs(replacing, numbers);
  const auto [left, right] = pairs.get_batch(Places{1, 4}, 0);
  CHECK(left == right);
  CHECK_THROWS_WITH(pairs.get_batch(Places{1, 2}, 0), "sample 2 cannot be read");
}

TEST_CASE("StackDataset: gives the datasets' batches side by side") {
  const Counted numbers{.first = 10, .count = 5};
  const EpochCounted by_epoch;
  const StackDataset pairs(numbers, by_epoch);
  CHECK(pairs.size() == 5);
  const auto [left, right] = pairs.get_batch(Places{4, 1}, 3);
  CHECK_THAT(left, ElementsAre(14, 11));
  CHECK_THAT(right, ElementsAre(3004, 3001));
  CHECK(left.data() == numbers.given);  // not a copy
  const Counted other{.count = 4};
  CHECK_THROWS_WITH(StackDataset(numbers, other),
                    "StackDataset: expected datasets of one size, but dataset 0 has 5 samples and dataset 1 has 4");
}

TEST_CASE("Views: go through a Loader with workers and resume in mid-epoch") {
  const Counted first{.first = 0, .count = 13}, second{.first = 100, .count = 9};
  const ConcatDataset all(first, second);
  const auto parts = random_split(all, {0.7, 0.3}, 1);
  const StackDataset stacked(parts[0], parts[0]);
  for (const int workers : {0, 3}) {
    DistributedSampler sampler(stacked.size(), {.num_replicas = 1, .rank = 0, .seed = 2});
    Loader loader(stacked, sampler, {.batch_size = 3, .workers = workers});
    Places seen;
    SamplerState state;
    for (auto& [left, right] : loader) {
      CHECK(left == right);
      seen.insert(seen.end(), left.begin(), left.end());
      if (seen.size() == 6) state = loader.state();
    }
    CHECK(seen == parts[0].get_batch(sampler.indices()));
    sampler.load_state(state);
    Places rest(seen.begin(), seen.begin() + 6);
    for (auto& [left, right] : loader) rest.insert(rest.end(), left.begin(), left.end());
    CHECK(rest == seen);
  }
}

}  // namespace
}  // namespace ddp
