// Random, weighted and sequential samplers over several ranks, and what all samplers do when a job goes on in
// mid-epoch.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/random_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>
#include <ddprun/samplers/weighted_sampler.h>

#include "base/job.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::ElementsAre;

using Catch::Matchers::IsEmpty;

// A sampler of a user's own, whose order is what it is told.
class OwnSampler : public EpochSampler {
 public:
  OwnSampler(int64_t length, std::vector<int64_t> order)
      : EpochSampler({.name = "OwnSampler", .length = length, .num_replicas = 2, .order = [order](int64_t, uint64_t) {
                        return order;
                      }}) {}
};

const std::vector<double> kWeights = {0.1, 0.0, 3.0, 0.5, 1.5, 0.2};

// list(torch.utils.data.WeightedRandomSampler(weights, count, replacement, generator=g)) after g.manual_seed(3)
TEST_CASE("WeightedSampler: is that of Python on one rank") {
  CHECK_THAT(WeightedSampler(kWeights, {.num_samples = 8, .seed = 3}).indices(), ElementsAre(2, 2, 4, 2, 4, 3, 2, 2));
  WeightedSampler without(kWeights, {.replacement = false, .num_samples = 5, .seed = 2});
  without.set_epoch(1);
  CHECK_THAT(without.indices(), ElementsAre(0, 3, 2, 4, 5));
}

TEST_CASE("WeightedSampler: ranks take turns and without replacement no sample comes twice on any rank") {
  std::vector<int64_t> seen;
  for (int rank = 0; rank < 5; ++rank) {
    const WeightedSampler sampler(kWeights,
                                  {.replacement = false, .num_samples = 5, .num_replicas = 5, .rank = rank, .seed = 3});
    REQUIRE(sampler.size() == 1);
    seen.push_back(sampler.indices().front());
  }
  CHECK_THAT(seen, ElementsAre(0, 3, 2, 4, 5));
}

TEST_CASE("WeightedSampler: refuses weights that give no probabilities") {
  const auto refused = [](const std::vector<double>& weights, const WeightedSamplerOptions& options, const char* text) {
    CHECK_THROWS_MATCHES(WeightedSampler(weights, options), std::invalid_argument,
                         MessageMatches(ContainsSubstring(text)));
  };
  refused({1, -1}, {}, "weight 1 is -1");
  refused({std::nan("")}, {}, "weight 0");
  refused({0, 0}, {}, "cannot draw 2 samples with replacement: 0 weights are positive");
  refused({1, 0}, {.replacement = false}, "cannot draw 2 samples without replacement: 1 weights");
  refused({1}, {.num_samples = -1}, "-1 samples");
  CHECK_THAT(WeightedSampler({}).indices(), IsEmpty());
}

TEST_CASE("RandomSampler: is that of Python on one rank and shared in turns on several") {
  CHECK_THAT(RandomSampler(5, {.num_samples = 12, .seed = 3}).indices(),
             ElementsAre(1, 0, 3, 4, 2, 0, 1, 2, 4, 3, 1, 4));
  CHECK_THAT(
      RandomSampler(10, {.replacement = true, .num_samples = 6, .num_replicas = 2, .rank = 1, .seed = 3}).indices(),
      ElementsAre(8, 7, 0));
  CHECK_THROWS_MATCHES(RandomSampler(0, {.num_samples = 3}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("3 samples from a dataset of size 0")));
  RandomSampler fixed(5);
  CHECK_THROWS_MATCHES(fixed.reset(6), std::invalid_argument,
                       MessageMatches(ContainsSubstring("cannot be changed to 6")));
  CHECK_NOTHROW(fixed.reset(5));
}

struct Group {
  int rank() const { return 1; }
  int size() const { return 3; }
};

TEST_CASE("EverySampler: takes its share from the group and no second word for it") {
  CHECK(DistributedSampler(10, Group(), {.seed = 4}).indices() ==
        DistributedSampler(10, {.num_replicas = 3, .rank = 1, .seed = 4}).indices());
  CHECK(RandomSampler(10, Group(), {.num_samples = 7}).indices() ==
        RandomSampler(10, {.num_samples = 7, .num_replicas = 3, .rank = 1}).indices());
  CHECK(WeightedSampler(kWeights, Group()).indices() ==
        WeightedSampler(kWeights, {.num_replicas = 3, .rank = 1}).indices());
  CHECK_THAT(SequentialSampler(8, Group()).indices(), ElementsAre(1, 4, 7));
  // The rank of this group too: on another rank the same program would be refused.
  const auto is_refused = MessageMatches(ContainsSubstring("and a group were given"));
  for (const int rank : {0, 1}) {
    CHECK_THROWS_MATCHES(DistributedSampler(40, Group(), {.rank = rank}), std::invalid_argument, is_refused);
    CHECK_THROWS_MATCHES(RandomSampler(40, Group(), {.rank = rank}), std::invalid_argument, is_refused);
    CHECK_THROWS_MATCHES(WeightedSampler(kWeights, Group(), {.rank = rank}), std::invalid_argument, is_refused);
    CHECK_THROWS_MATCHES(SequentialSampler(40, Group(), {.rank = rank}), std::invalid_argument, is_refused);
  }
}

TEST_CASE("EverySampler: refuses in a job of several ranks when nobody said which this is") {
  const ThreadJob job({.rank = 1, .size = 2});
  const auto is_refused = MessageMatches(ContainsSubstring("all 2 ranks would get every sample"));
  CHECK_THROWS_MATCHES(DistributedSampler(10), std::invalid_argument, is_refused);
  CHECK_THROWS_MATCHES(RandomSampler(10, {.seed = 3}), std::invalid_argument, is_refused);
  CHECK_THROWS_MATCHES(WeightedSampler({1.0, 2.0}), std::invalid_argument, is_refused);
  CHECK_THROWS_MATCHES(SequentialSampler(10), std::invalid_argument, is_refused);
  UNSCOPED_INFO("over everything, as it was asked for");
  CHECK(SequentialSampler(10, {.num_replicas = 1, .rank = 0}).size() == 10);
  CHECK(DistributedSampler(10, {.num_replicas = 2, .rank = 1}).size() == 5);
}

TEST_CASE("SequentialSampler: gives every sample to exactly one rank") {
  for (const int world : {1, 2, 3, 7, 20}) {
    std::vector<int64_t> seen;
    for (int rank = 0; rank < world; ++rank) {
      const auto indices = SequentialSampler(13, {.num_replicas = world, .rank = rank}).indices();
      CHECK(std::is_sorted(indices.begin(), indices.end()));
      seen.insert(seen.end(), indices.begin(), indices.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(13);
    std::iota(all.begin(), all.end(), int64_t{0});
    INFO(world << " ranks");
    CHECK(seen == all);
  }
}

/// Makes one rank's sampler of some kind.
using Factory = std::function<std::shared_ptr<EpochSampler>(int world, int rank)>;

/// Tests that hold for every kind of sampler.
class Resume {
 protected:
  std::vector<std::shared_ptr<EpochSampler>> ranks(int world) const {
    std::vector<std::shared_ptr<EpochSampler>> samplers;
    for (int rank = 0; rank < world; ++rank) samplers.push_back(make(world, rank));
    return samplers;
  }

  const Factory make = GENERATE(
      as<Factory>(),
      [](int world, int rank) {
        return std::make_shared<DistributedSampler>(
            23, DistributedSamplerOptions{.num_replicas = world, .rank = rank, .seed = 5});
      },
      [](int world, int rank) {
        return std::make_shared<SequentialSampler>(23, SequentialSamplerOptions{.num_replicas = world, .rank = rank});
      },
      [](int world, int rank) {
        return std::make_shared<RandomSampler>(
            7, RandomSamplerOptions{.replacement = true, .num_samples = 23, .num_replicas = world, .rank = rank});
      },
      [](int world, int rank) {
        return std::make_shared<WeightedSampler>(
            kWeights, WeightedSamplerOptions{.num_samples = 23, .num_replicas = world, .rank = rank, .seed = 1});
      });
};

std::vector<int64_t> take(EpochSampler& sampler, size_t count) {
  const auto batch = count == 0 ? std::nullopt : sampler.next(count);
  return batch ? std::vector<int64_t>(batch->begin(), batch->end()) : std::vector<int64_t>();
}

TEST_CASE_METHOD(Resume, "Resume: with as many ranks goes on where it stopped") {
  for (size_t done = 0; done <= 8; ++done) {
    for (int rank = 0; rank < 3; ++rank) {
      auto first = make(3, rank);
      first->set_epoch(4);
      take(*first, done);
      auto second = make(3, rank);
      second->load_state(make(3, 0)->state());  // whatever was loaded before
      second->load_state(first->state());
      CHECK(second->epoch() == 4);
      CHECK(second->state() == first->state());
      const std::vector<int64_t> left = second->indices();
      second->set_epoch(4);
      const std::vector<int64_t> rest = take(*first, 100);
      UNSCOPED_INFO(done << " samples done");
      CHECK(left == rest);
      CHECK(take(*second, 100) == rest);
    }
  }
}

TEST_CASE_METHOD(Resume, "Resume: with another number of ranks the order of the whole job goes on") {
  const std::vector<int64_t> order = [this] {
    auto alone = make(1, 0);
    alone->set_epoch(2);
    return alone->indices();
  }();
  const auto length = static_cast<int64_t>(order.size());
  for (const int before : {1, 2, 5}) {
    for (const int after : {1, 3, 4}) {
      for (int64_t done = 0; done * before <= length; ++done) {
        auto first = ranks(before).front();
        first->set_epoch(2);
        const SamplerState state = first->state_after(done);
        std::vector<std::vector<int64_t>> shares;
        for (auto& sampler : ranks(after)) {
          sampler->load_state(state);
          sampler->reset();
          shares.push_back(take(*sampler, 1000));
        }
        for (int64_t position = done * before; position < length; ++position) {
          const auto step = static_cast<size_t>(position - done * before);
          const auto& share = shares.at(step % static_cast<size_t>(after));
          REQUIRE(share.at(step / static_cast<size_t>(after)) == order[static_cast<size_t>(position)]);
        }
      }
    }
  }
}

TEST_CASE_METHOD(Resume, "Resume: the next epoch is whole again") {
  auto sampler = make(2, 1);
  const std::vector<int64_t> whole = sampler->indices();
  sampler->load_state(sampler->state_after(3));
  CHECK(sampler->size() == static_cast<int64_t>(whole.size()) - 3);
  sampler->reset();
  take(*sampler, 100);
  sampler->reset();
  CHECK(take(*sampler, 100) == whole);
  sampler->load_state(sampler->state_after(3));
  sampler->set_epoch(9);
  CHECK(sampler->size() == static_cast<int64_t>(whole.size()));
}

TEST_CASE_METHOD(Resume, "Resume: a state that does not fit is refused and changes nothing") {
  auto sampler = make(2, 0);
  sampler->set_epoch(1);
  const SamplerState before = sampler->state();
  SamplerState other = sampler->state_after(2);
  other.length += 1;
  CHECK_THROWS_MATCHES(sampler->load_state(other), std::invalid_argument,
                       MessageMatches(ContainsSubstring("saved after 4 of")));
  other = before;
  other.consumed = -1;
  CHECK_THROWS_AS(sampler->load_state(other), std::invalid_argument);
  CHECK_THROWS_AS(sampler->state_after(1000), std::invalid_argument);
  CHECK(sampler->state() == before);
}

TEST_CASE_METHOD(Resume, "Resume: the state in mid-epoch is that epoch's even when the next is set") {
  auto sampler = make(2, 0);
  sampler->set_epoch(1);
  take(*sampler, 3);
  sampler->set_epoch(2);
  CHECK(sampler->state().epoch == 1);
  CHECK(sampler->state().consumed == 6);
}

TEST_CASE("EpochSampler: an order of another length, or with a negative sample, is refused when it is drawn") {
  CHECK_THAT(OwnSampler(4, {3, 2, 1, 0}).indices(), ElementsAre(3, 1));
  const auto refuses = [](OwnSampler sampler, const char* why) {
    CHECK_THROWS_MATCHES(sampler.indices(), std::logic_error, MessageMatches(ContainsSubstring(why)));
    CHECK_THROWS_AS(sampler.reset(), std::logic_error);
    CHECK_THROWS_AS(sampler.share_of_epoch(1), std::logic_error);
  };
  refuses(OwnSampler(4, {0, 1, 2}), "OwnSampler: the order of an epoch has 3 samples, but the sampler was made for 4");
  refuses(OwnSampler(2, {0, 1, 2}), "has 3 samples");
  refuses(OwnSampler(2, {0, -7}), "has sample -7");
}

}  // namespace
}  // namespace ddp
