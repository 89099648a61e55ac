// Random, weighted and sequential samplers over several ranks, and what all samplers do when a job goes on in
// mid-epoch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "ranks/job.h"
#include "samplers/distributed_sampler.h"
#include "samplers/random_sampler.h"
#include "samplers/sequential_sampler.h"
#include "samplers/weighted_sampler.h"

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

const std::vector<double> kWeights = {0.1, 0.0, 3.0, 0.5, 1.5, 0.2};

// list(torch.utils.data.WeightedRandomSampler(weights, count, replacement, generator=g)) after g.manual_seed(3)
TEST(WeightedSampler, is_that_of_python_on_one_rank) {
  EXPECT_THAT(WeightedSampler(kWeights, {.num_samples = 8, .seed = 3}).indices(), ElementsAre(2, 2, 4, 2, 4, 3, 2, 2));
  WeightedSampler without(kWeights, {.replacement = false, .num_samples = 5, .seed = 2});
  without.set_epoch(1);
  EXPECT_THAT(without.indices(), ElementsAre(0, 3, 2, 4, 5));
}

TEST(WeightedSampler, ranks_take_turns_and_without_replacement_no_sample_comes_twice_on_any_rank) {
  std::vector<int64_t> seen;
  for (int rank = 0; rank < 5; ++rank) {
    const WeightedSampler sampler(kWeights,
                                  {.replacement = false, .num_samples = 5, .num_replicas = 5, .rank = rank, .seed = 3});
    ASSERT_EQ(sampler.size(), 1);
    seen.push_back(sampler.indices().front());
  }
  EXPECT_THAT(seen, ElementsAre(0, 3, 2, 4, 5));
}

TEST(WeightedSampler, refuses_weights_that_give_no_probabilities) {
  const auto refused = [](const std::vector<double>& weights, const WeightedSamplerOptions& options, const char* text) {
    EXPECT_THAT([&] { WeightedSampler(weights, options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  refused({1, -1}, {}, "weight 1 is -1");
  refused({std::nan("")}, {}, "weight 0");
  refused({0, 0}, {}, "cannot draw 2 samples with replacement: 0 weights are positive");
  refused({1, 0}, {.replacement = false}, "cannot draw 2 samples without replacement: 1 weights");
  refused({1}, {.num_samples = -1}, "-1 samples");
  EXPECT_THAT(WeightedSampler({}).indices(), IsEmpty());
}

TEST(RandomSampler, is_that_of_python_on_one_rank_and_shared_in_turns_on_several) {
  EXPECT_THAT(RandomSampler(5, {.num_samples = 12, .seed = 3}).indices(),
              ElementsAre(1, 0, 3, 4, 2, 0, 1, 2, 4, 3, 1, 4));
  EXPECT_THAT(
      RandomSampler(10, {.replacement = true, .num_samples = 6, .num_replicas = 2, .rank = 1, .seed = 3}).indices(),
      ElementsAre(8, 7, 0));
  EXPECT_THAT([] { RandomSampler(0, {.num_samples = 3}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("3 samples from a dataset of size 0")));
  RandomSampler fixed(5);
  EXPECT_THAT([&] { fixed.reset(6); }, ThrowsMessage<std::invalid_argument>(HasSubstr("cannot become 6")));
  EXPECT_NO_THROW(fixed.reset(5));
}

struct Group {
  int rank() const { return 1; }
  int size() const { return 3; }
};

TEST(EverySampler, takes_its_share_from_the_group_and_no_second_word_for_it) {
  EXPECT_EQ(DistributedSampler(10, Group(), {.seed = 4}).indices(),
            DistributedSampler(10, {.num_replicas = 3, .rank = 1, .seed = 4}).indices());
  EXPECT_EQ(RandomSampler(10, Group(), {.num_samples = 7}).indices(),
            RandomSampler(10, {.num_samples = 7, .num_replicas = 3, .rank = 1}).indices());
  EXPECT_EQ(WeightedSampler(kWeights, Group()).indices(),
            WeightedSampler(kWeights, {.num_replicas = 3, .rank = 1}).indices());
  EXPECT_THAT(SequentialSampler(8, Group()).indices(), ElementsAre(1, 4, 7));
  // The rank of this group too: on another rank the same program would be refused.
  const auto is_refused = ThrowsMessage<std::invalid_argument>(HasSubstr("beside the group"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT([&] { DistributedSampler(40, Group(), {.rank = rank}); }, is_refused);
    EXPECT_THAT([&] { RandomSampler(40, Group(), {.rank = rank}); }, is_refused);
    EXPECT_THAT([&] { WeightedSampler(kWeights, Group(), {.rank = rank}); }, is_refused);
    EXPECT_THAT([&] { SequentialSampler(40, Group(), {.rank = rank}); }, is_refused);
  }
}

TEST(EverySampler, refuses_in_a_job_of_several_ranks_when_nobody_said_which_this_is) {
  const ThreadJob job({.rank = 1, .size = 2});
  const auto is_refused = ThrowsMessage<std::invalid_argument>(HasSubstr("all 2 ranks would get every sample"));
  EXPECT_THAT([] { DistributedSampler(10); }, is_refused);
  EXPECT_THAT([] { RandomSampler(10, {.seed = 3}); }, is_refused);
  EXPECT_THAT([] { WeightedSampler({1.0, 2.0}); }, is_refused);
  EXPECT_THAT([] { SequentialSampler(10); }, is_refused);
  EXPECT_EQ(SequentialSampler(10, {.num_replicas = 1, .rank = 0}).size(), 10) << "over everything, as it was asked for";
  EXPECT_EQ(DistributedSampler(10, {.num_replicas = 2, .rank = 1}).size(), 5);
}

TEST(SequentialSampler, gives_every_sample_to_exactly_one_rank) {
  for (const int world : {1, 2, 3, 7, 20}) {
    std::vector<int64_t> seen;
    for (int rank = 0; rank < world; ++rank) {
      const auto indices = SequentialSampler(13, {.num_replicas = world, .rank = rank}).indices();
      EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
      seen.insert(seen.end(), indices.begin(), indices.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(13);
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(seen, all) << world << " ranks";
  }
}

/// Makes one rank's sampler of some kind.
using Factory = std::function<std::shared_ptr<EpochSampler>(int world, int rank)>;

class ResumeTest : public testing::TestWithParam<Factory> {
 protected:
  static std::vector<std::shared_ptr<EpochSampler>> ranks(int world) {
    std::vector<std::shared_ptr<EpochSampler>> samplers;
    for (int rank = 0; rank < world; ++rank) samplers.push_back(GetParam()(world, rank));
    return samplers;
  }
};

std::vector<int64_t> take(EpochSampler& sampler, size_t count) {
  const auto batch = count == 0 ? std::nullopt : sampler.next(count);
  return batch ? std::vector<int64_t>(batch->begin(), batch->end()) : std::vector<int64_t>();
}

TEST_P(ResumeTest, with_as_many_ranks_goes_on_where_it_stopped) {
  for (size_t done = 0; done <= 8; ++done) {
    for (int rank = 0; rank < 3; ++rank) {
      auto first = GetParam()(3, rank);
      first->set_epoch(4);
      take(*first, done);
      auto second = GetParam()(3, rank);
      second->load_state(GetParam()(3, 0)->state());  // whatever was loaded before
      second->load_state(first->state());
      EXPECT_EQ(second->epoch(), 4);
      EXPECT_EQ(second->state(), first->state());
      const std::vector<int64_t> left = second->indices();
      second->set_epoch(4);
      const std::vector<int64_t> rest = take(*first, 100);
      EXPECT_EQ(left, rest) << done << " samples done";
      EXPECT_EQ(take(*second, 100), rest);
    }
  }
}

TEST_P(ResumeTest, with_another_number_of_ranks_the_order_of_the_whole_job_goes_on) {
  const std::vector<int64_t> order = [] {
    auto alone = GetParam()(1, 0);
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
          ASSERT_EQ(share.at(step / static_cast<size_t>(after)), order[static_cast<size_t>(position)]);
        }
      }
    }
  }
}

TEST_P(ResumeTest, the_next_epoch_is_whole_again) {
  auto sampler = GetParam()(2, 1);
  const std::vector<int64_t> whole = sampler->indices();
  sampler->load_state(sampler->state_after(3));
  EXPECT_EQ(sampler->size(), static_cast<int64_t>(whole.size()) - 3);
  sampler->reset();
  take(*sampler, 100);
  sampler->reset();
  EXPECT_EQ(take(*sampler, 100), whole);
  sampler->load_state(sampler->state_after(3));
  sampler->set_epoch(9);
  EXPECT_EQ(sampler->size(), static_cast<int64_t>(whole.size()));
}

TEST_P(ResumeTest, a_state_that_does_not_fit_is_refused_and_changes_nothing) {
  auto sampler = GetParam()(2, 0);
  sampler->set_epoch(1);
  const SamplerState before = sampler->state();
  SamplerState other = sampler->state_after(2);
  other.length += 1;
  EXPECT_THAT([&] { sampler->load_state(other); }, ThrowsMessage<std::invalid_argument>(HasSubstr("saved after 4 of")));
  other = before;
  other.consumed = -1;
  EXPECT_THROW(sampler->load_state(other), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(sampler->state_after(1000)), std::invalid_argument);
  EXPECT_EQ(sampler->state(), before);
}

TEST_P(ResumeTest, the_state_in_mid_epoch_is_that_epochs_even_when_the_next_is_set) {
  auto sampler = GetParam()(2, 0);
  sampler->set_epoch(1);
  take(*sampler, 3);
  sampler->set_epoch(2);
  EXPECT_EQ(sampler->state().epoch, 1);
  EXPECT_EQ(sampler->state().consumed, 6);
}

INSTANTIATE_TEST_SUITE_P(
    kinds, ResumeTest,
    testing::Values(
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
        }));

}  // namespace
}  // namespace ddp
