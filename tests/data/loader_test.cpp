// The loader over a sampler: the same batches whatever the workers, epochs, resume, errors with the sample's index.
#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "data/augmented_images.h"
#include "data/batches.h"
#include "data/cifar10.h"
#include "samplers/distributed_sampler.h"
#include "samplers/sequential_sampler.h"
#include "tests/data/files.h"

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::ThrowsMessage;
using Numbers = std::vector<int64_t>;

/// Samples are their indices; sample `broken` cannot be read.
struct Indices {
  int64_t broken = -1;
  Numbers get_batch(std::span<const int64_t> indices) const {
    for (const int64_t index : indices) {
      if (index == broken) throw std::runtime_error("unreadable");
    }
    return {indices.begin(), indices.end()};
  }
};

/// Samples are index and epoch.
struct ByEpoch {
  Numbers get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    Numbers values;
    for (const int64_t index : indices) values.push_back(1000 * epoch + index);
    return values;
  }
};

template <typename Dataset>
std::vector<Numbers> all(Loader<Dataset>& loader) {
  std::vector<Numbers> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

class LoaderTest : public ::testing::TestWithParam<int> {};

TEST_P(LoaderTest, gives_the_samplers_order_in_batches_epoch_after_epoch) {
  const Indices dataset;
  DistributedSampler sampler(23, {.num_replicas = 2, .rank = 1, .seed = 3});
  Loader loader(dataset, sampler, {.batch_size = 5, .workers = GetParam()});
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    sampler.set_epoch(epoch);
    EXPECT_EQ(loader.size(), 3);
    Numbers seen;
    for (const Numbers& batch : all(loader)) seen.insert(seen.end(), batch.begin(), batch.end());
    EXPECT_EQ(seen, sampler.indices());
  }
}

TEST_P(LoaderTest, tells_the_dataset_the_epoch_and_leaves_out_a_ragged_batch_if_asked) {
  const ByEpoch dataset;
  SequentialSampler sampler(5);
  Loader loader(dataset, sampler, {.batch_size = 2, .drop_last = true, .workers = GetParam()});
  sampler.set_epoch(7);
  EXPECT_EQ(loader.size(), 2);
  EXPECT_THAT(all(loader), ElementsAre(ElementsAre(7000, 7001), ElementsAre(7002, 7003)));
}

TEST_P(LoaderTest, goes_on_in_mid_epoch_although_it_has_read_ahead) {
  const Indices dataset;
  for (int64_t stop = 1; stop <= 4; ++stop) {
    DistributedSampler sampler(40, {.num_replicas = 2, .rank = 0, .seed = 1});
    Loader loader(dataset, sampler, {.batch_size = 5, .workers = GetParam(), .prefetch = 8});
    sampler.set_epoch(2);
    const std::vector<Numbers> whole = all(loader);
    SamplerState state;
    int64_t done = 0;
    for (auto& batch : loader) {
      EXPECT_EQ(batch, whole[static_cast<size_t>(done)]);
      state = loader.state();
      if (++done == stop) break;
    }
    EXPECT_EQ(state.consumed, stop * 5 * 2);
    DistributedSampler later(40, {.num_replicas = 2, .rank = 0});
    later.load_state(state);
    Loader rest(dataset, later, {.batch_size = 5, .workers = GetParam()});
    EXPECT_EQ(all(rest), std::vector<Numbers>(whole.begin() + stop, whole.end()));
  }
}

TEST_P(LoaderTest, the_sampler_counts_what_was_given_out_and_not_what_was_read_ahead) {
  const Indices dataset;
  DistributedSampler sampler(40, {.num_replicas = 2, .rank = 1, .seed = 1});
  Loader loader(dataset, sampler, {.batch_size = 5, .workers = GetParam(), .prefetch = 8});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    int64_t given = 0;
    for ([[maybe_unused]] auto& batch : loader) {
      given += 10;
      EXPECT_EQ(sampler.state(), (SamplerState{.seed = 1, .epoch = epoch, .consumed = given, .length = 40}));
      EXPECT_EQ(loader.state(), sampler.state());
    }
    EXPECT_EQ(given, 40);
    EXPECT_EQ(sampler.state().consumed, 40) << "nothing is left of the epoch when its loop has ended";
  }
}

TEST_P(LoaderTest, the_pass_behind_a_resumed_one_is_whole_even_if_nobody_calls_set_epoch) {
  const Indices dataset;
  SequentialSampler sampler(10);
  sampler.load_state({.consumed = 6, .length = 10});
  Loader loader(dataset, sampler, {.batch_size = 4, .workers = GetParam()});
  EXPECT_EQ(loader.size(), 1);
  EXPECT_THAT(all(loader), ElementsAre(ElementsAre(6, 7, 8, 9)));
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(all(loader).size(), 3);
}

TEST_P(LoaderTest, a_pass_goes_on_when_a_state_is_loaded_in_its_middle_and_is_what_counts_then) {
  const Indices dataset;
  SequentialSampler sampler(12);
  Loader loader(dataset, sampler, {.batch_size = 3, .workers = GetParam()});
  sampler.set_epoch(5);
  Numbers firsts;
  for (auto& batch : loader) {
    firsts.push_back(batch.front());
    if (firsts.size() == 2) sampler.load_state({.seed = 9, .epoch = 4, .consumed = 3, .length = 12});
    if (firsts.size() == 3) {
      EXPECT_EQ(sampler.state(), (SamplerState{.epoch = 5, .consumed = 9, .length = 12}));
    }
  }
  EXPECT_THAT(firsts, ElementsAre(0, 3, 6, 9));
  EXPECT_EQ(all(loader).size(), 4);
  // Left at once, the loaded state is where the next pass begins.
  for ([[maybe_unused]] auto& batch : loader) {
    sampler.load_state({.consumed = 6, .length = 12});
    break;
  }
  EXPECT_THAT(all(loader), ElementsAre(ElementsAre(6, 7, 8), ElementsAre(9, 10, 11)));
}

TEST(Batches, of_a_sampler_tell_it_what_was_given_out) {
  const Indices dataset;
  SequentialSampler sampler(10, {.num_replicas = 2, .rank = 1});
  std::vector<Numbers> seen;
  for (auto& batch : batches(dataset, sampler, 2)) {
    seen.push_back(batch);
    EXPECT_EQ(sampler.state().consumed, std::min<int64_t>(5, 2 * std::ssize(seen)) * 2);
    if (seen.size() == 2) break;
  }
  sampler.load_state(sampler.state());
  EXPECT_EQ(batches(dataset, sampler, 2).size(), 1);
  for (auto& batch : batches(dataset, sampler, 2)) seen.push_back(batch);
  EXPECT_THAT(seen, ElementsAre(ElementsAre(1, 3), ElementsAre(5, 7), ElementsAre(9)));
  EXPECT_EQ(batches(dataset, sampler, 2).size(), 3);
}

TEST_P(LoaderTest, an_unreadable_sample_is_named_and_the_next_pass_works) {
  const Indices dataset{.broken = 6};
  SequentialSampler sampler(20);
  Loader loader(dataset, sampler, {.batch_size = 4, .workers = GetParam()});
  for (int round = 0; round < 2; ++round) {
    std::vector<Numbers> seen;
    EXPECT_THAT(
        [&] {
          for (auto& batch : loader) seen.push_back(batch);
        },
        ThrowsMessage<LoaderError>("sample 6: unreadable"));
    EXPECT_THAT(seen, ElementsAre(ElementsAre(0, 1, 2, 3)));
  }
}

TEST_P(LoaderTest, augmented_images_are_the_same_whatever_the_workers_and_differ_from_epoch_to_epoch) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path() / "data_batch_1.bin", testing::records(0, 30));
  const Cifar10 images(folder.path(), Cifar10::Split::kTrain);
  const AugmentedImages augmented(images, {.seed = 4});
  SequentialSampler sampler(images.size());
  Loader loader(augmented, sampler, {.batch_size = 7, .workers = GetParam()});
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    int64_t first = 0;
    for (auto& batch : loader) {
      Numbers indices;
      for (int64_t i = 0; i < batch.target.numel(); ++i) indices.push_back(first + i);
      EXPECT_TRUE(batch.data.equal(augmented.get_batch(indices, epoch).data));
      EXPECT_FALSE(batch.data.equal(augmented.get_batch(indices, epoch + 1).data));
      EXPECT_TRUE(batch.target.equal(images.get_batch(std::span<const int64_t>(indices)).target));
      first += batch.target.numel();
    }
    EXPECT_EQ(first, 30);
  }
  const AugmentedImages unchanged(images, {.padding = 0, .flip = false});
  const Numbers some = {3, 1, 29};
  EXPECT_TRUE(unchanged.get_batch(some, 5).data.equal(images.get_batch(std::span<const int64_t>(some)).data));
  EXPECT_THROW(unchanged.get_batch(Numbers{30}, 0), std::out_of_range);
}

INSTANTIATE_TEST_SUITE_P(workers, LoaderTest, ::testing::Values(0, 1, 3));

TEST(Loader, numbers_that_make_no_loader_are_refused) {
  const Indices dataset;
  SequentialSampler sampler(3);
  EXPECT_THROW(Loader(dataset, sampler, {.batch_size = 0}), std::invalid_argument);
  EXPECT_THROW(Loader(dataset, sampler, {.workers = -1}), std::invalid_argument);
  EXPECT_THROW(Loader(dataset, sampler, {.prefetch = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
