// DistributedSampler against what PyTorch 2.11.0 gives (sampler_expected.json), and inside LibTorch's data loader.
#include "samplers/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/serialize/archive.h>

#include <limits>
#include <sstream>
#include <stdexcept>

#include "tests/samplers/expected.h"

namespace ddp {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::ThrowsMessage;

const json& expected() {
  static const json content = testing::expected_orders();
  return content;
}

TEST(DistributedSampler, gives_the_order_of_python_in_every_case) {
  const json& cases = expected().at("cases");
  ASSERT_EQ(cases.size(), 560U);
  for (const json& c : cases) {
    SCOPED_TRACE(c.dump());
    const int world = c.at("world");
    for (int rank = 0; rank < world; ++rank) {
      DistributedSampler sampler(c.at("n"), {.num_replicas = world,
                                             .rank = rank,
                                             .shuffle = c.at("shuffle"),
                                             .seed = c.at("seed"),
                                             .drop_last = c.at("drop_last")});
      sampler.set_epoch(c.at("epoch"));
      ASSERT_EQ(sampler.size(), c.at("num_samples").get<int64_t>());
      const std::vector<int64_t> indices = sampler.indices();
      if (c.at("ranks").is_null()) {
        const json& want = c.at("rank_digest").at(static_cast<size_t>(rank));
        ASSERT_EQ(indices.size(), want.at("count").get<size_t>());
        testing::expect_digest(indices, want);
      } else {
        ASSERT_EQ(indices, c.at("ranks").at(static_cast<size_t>(rank)).get<std::vector<int64_t>>());
      }
    }
  }
}

TEST(DistributedSampler, shuffles_as_randperm_of_python_does_for_any_seed) {
  ASSERT_EQ(expected().at("randperm").size(), 36U);
  for (const json& c : expected().at("randperm")) {
    const DistributedSampler sampler(c.at("n"), {.seed = c.at("seed")});
    EXPECT_EQ(sampler.indices(), c.at("perm").get<std::vector<int64_t>>()) << c.dump();
  }
  ASSERT_EQ(expected().at("randperm_big").size(), 9U);
  for (const json& c : expected().at("randperm_big")) {
    SCOPED_TRACE(c.dump());
    const std::vector<int64_t> indices = DistributedSampler(c.at("n"), {.seed = c.at("seed")}).indices();
    ASSERT_EQ(indices.size(), c.at("n").get<size_t>());
    testing::expect_digest(indices, c);
  }
}

TEST(DistributedSampler, adds_the_epoch_to_the_seed_and_wraps_around) {
  DistributedSampler last(100, {.seed = std::numeric_limits<uint64_t>::max()});
  last.set_epoch(8);
  EXPECT_EQ(last.indices(), DistributedSampler(100, {.seed = 7}).indices());
}

TEST(DistributedSampler, keeps_the_dataset_order_without_shuffle_in_every_epoch) {
  DistributedSampler sampler(6, {.num_replicas = 2, .rank = 1, .shuffle = false});
  EXPECT_THAT(sampler.indices(), ElementsAre(1, 3, 5));
  sampler.set_epoch(3);
  EXPECT_THAT(sampler.indices(), ElementsAre(1, 3, 5));
}

TEST(DistributedSampler, next_gives_the_epoch_in_batches_and_then_nothing) {
  DistributedSampler sampler(10, {.shuffle = false});
  EXPECT_THAT(sampler.next(4), Optional(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(sampler.next(4), Optional(ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(sampler.next(4), Optional(ElementsAre(8, 9)));
  EXPECT_EQ(sampler.next(4), std::nullopt);
  sampler.reset();
  EXPECT_THAT(sampler.next(2), Optional(ElementsAre(0, 1)));
  sampler.reset(3);
  EXPECT_EQ(sampler.size(), 3);
  EXPECT_THAT(sampler.next(10), Optional(ElementsAre(0, 1, 2)));
}

TEST(DistributedSampler, an_epoch_set_before_the_first_batch_counts_and_one_set_in_between_waits_for_the_reset) {
  const std::vector<int64_t> epoch_0 = DistributedSampler(50).indices();
  DistributedSampler sampler(50);
  sampler.set_epoch(1);
  const std::vector<int64_t> epoch_1 = sampler.indices();
  ASSERT_NE(epoch_0, epoch_1);
  std::vector<size_t> seen = sampler.next(20).value();
  sampler.set_epoch(0);
  const std::vector<size_t> rest = sampler.next(30).value();
  seen.insert(seen.end(), rest.begin(), rest.end());
  EXPECT_EQ(std::vector<int64_t>(seen.begin(), seen.end()), epoch_1);
  sampler.reset();
  EXPECT_EQ(static_cast<int64_t>(sampler.next(1)->front()), epoch_0.front());
}

TEST(DistributedSampler, refuses_values_that_make_no_shard_and_names_them) {
  EXPECT_THAT([] { DistributedSampler(4, {.num_replicas = 2, .rank = 2}); },
              ThrowsMessage<std::invalid_argument>("Invalid rank 2, rank should be in the interval [0, 1]"));
  EXPECT_THAT([] { DistributedSampler(4, {.num_replicas = 2, .rank = -1}); },
              ThrowsMessage<std::invalid_argument>("Invalid rank -1, rank should be in the interval [0, 1]"));
  EXPECT_THAT([] { DistributedSampler(4, {.num_replicas = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("Invalid num_replicas 0")));
  EXPECT_THAT([] { DistributedSampler(-1); }, ThrowsMessage<std::invalid_argument>(HasSubstr("-1")));
}

/// A dataset whose samples are their indices.
struct Indices {
  using BatchType = std::vector<size_t>;
  using BatchRequestType = std::vector<size_t>;
  static constexpr bool is_stateful = false;
  BatchType get_batch(const BatchRequestType& request) const { return request; }
};

class DataLoaderTest : public ::testing::TestWithParam<size_t> {};

TEST_P(DataLoaderTest, follows_set_epoch_although_it_holds_the_sampler_by_value) {
  for (int rank = 0; rank < 3; ++rank) {
    DistributedSampler sampler(100, {.num_replicas = 3, .rank = rank, .seed = 5});
    auto loader =
        torch::data::make_data_loader(Indices{}, sampler, torch::data::DataLoaderOptions(8).workers(GetParam()));
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      sampler.set_epoch(epoch);
      std::vector<int64_t> seen;
      for (const std::vector<size_t>& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
      EXPECT_EQ(seen, sampler.indices()) << "epoch " << epoch;
      DistributedSampler fresh(100, {.num_replicas = 3, .rank = rank, .seed = 5 + static_cast<uint64_t>(epoch)});
      EXPECT_EQ(seen, fresh.indices()) << "epoch " << epoch;
      for (const auto& earlier : epochs) EXPECT_NE(seen, earlier) << "epoch " << epoch;
      epochs.push_back(seen);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(workers, DataLoaderTest, ::testing::Values(0, 2));

std::string saved(const DistributedSampler& sampler) {
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load(DistributedSampler& sampler, const std::string& bytes) {
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  sampler.load(archive);
}

TEST(DistributedSampler, continues_after_the_last_sample_given_out_when_saved_at_any_point) {
  const DistributedSamplerOptions options{.num_replicas = 2, .rank = 1, .seed = 9};
  for (size_t done = 0; done <= 10; ++done) {
    DistributedSampler first(20, options);
    first.set_epoch(6);
    if (done > 0) first.next(done);
    DistributedSampler second(20, {.num_replicas = 2, .rank = 1});
    second.next(3);
    load(second, saved(first));
    EXPECT_EQ(second.epoch(), 6);
    EXPECT_EQ(second.next(100), first.next(100)) << done << " samples done";
  }
}

TEST(DistributedSampler, a_saved_state_goes_on_with_another_number_of_ranks_and_refuses_another_dataset) {
  DistributedSampler four(40, {.num_replicas = 4, .rank = 0});
  four.next(2);
  DistributedSampler two(40, {.num_replicas = 2, .rank = 0});
  two.set_epoch(3);
  load(two, saved(four));
  EXPECT_EQ(two.epoch(), 0);
  EXPECT_EQ(two.size(), 16);
  DistributedSampler small(4, {.num_replicas = 4, .rank = 0});
  EXPECT_THAT([&] { load(small, saved(four)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("saved after 8 of 40 samples")));
}

}  // namespace
}  // namespace ddp
