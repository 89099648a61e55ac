// DistributedSampler against what PyTorch 2.11.0 gives (sampler_expected.json), and inside LibTorch's data loader.
#include <torch/data/dataloader.h>
#include <torch/serialize/archive.h>

#include <limits>
#include <sstream>
#include <stdexcept>

#include <ddprun/samplers/distributed_sampler.h>

#include "tests/samplers/expected.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using nlohmann::json;
using test::ElementsAre;

const json& expected() {
  static const json content = test::expected_orders();
  return content;
}

TEST_CASE("DistributedSampler: gives the order of Python in every case") {
  const json& cases = expected().at("cases");
  REQUIRE(cases.size() == 560U);
  for (const json& c : cases) {
    INFO(c.dump());
    const int world = c.at("world");
    for (int rank = 0; rank < world; ++rank) {
      DistributedSampler sampler(c.at("n"), {.num_replicas = world,
                                             .rank = rank,
                                             .shuffle = c.at("shuffle"),
                                             .seed = c.at("seed"),
                                             .drop_last = c.at("drop_last")});
      sampler.set_epoch(c.at("epoch"));
      REQUIRE(sampler.size() == c.at("num_samples").get<int64_t>());
      const std::vector<int64_t> indices = sampler.indices();
      if (c.at("ranks").is_null()) {
        const json& want = c.at("rank_digest").at(static_cast<size_t>(rank));
        REQUIRE(indices.size() == want.at("count").get<size_t>());
        test::expect_digest(indices, want);
      } else {
        REQUIRE(indices == c.at("ranks").at(static_cast<size_t>(rank)).get<std::vector<int64_t>>());
      }
    }
  }
}

TEST_CASE("DistributedSampler: shuffles as Python's randperm does for any seed") {
  REQUIRE(expected().at("randperm").size() == 36U);
  for (const json& c : expected().at("randperm")) {
    const DistributedSampler sampler(c.at("n"), {.seed = c.at("seed")});
    INFO(c.dump());
    CHECK(sampler.indices() == c.at("perm").get<std::vector<int64_t>>());
  }
  REQUIRE(expected().at("randperm_big").size() == 9U);
  for (const json& c : expected().at("randperm_big")) {
    INFO(c.dump());
    const std::vector<int64_t> indices = DistributedSampler(c.at("n"), {.seed = c.at("seed")}).indices();
    REQUIRE(indices.size() == c.at("n").get<size_t>());
    test::expect_digest(indices, c);
  }
}

TEST_CASE("DistributedSampler: adds the epoch to the seed and wraps around") {
  DistributedSampler last(100, {.seed = std::numeric_limits<uint64_t>::max()});
  last.set_epoch(8);
  CHECK(last.indices() == DistributedSampler(100, {.seed = 7}).indices());
}

TEST_CASE("DistributedSampler: keeps the dataset order without shuffle in every epoch") {
  DistributedSampler sampler(6, {.num_replicas = 2, .rank = 1, .shuffle = false});
  CHECK_THAT(sampler.indices(), ElementsAre(1, 3, 5));
  sampler.set_epoch(3);
  CHECK_THAT(sampler.indices(), ElementsAre(1, 3, 5));
}

TEST_CASE("DistributedSampler: next gives the epoch in batches and then nothing") {
  DistributedSampler sampler(10, {.shuffle = false});
  CHECK_THAT(sampler.next(4).value(), ElementsAre(0, 1, 2, 3));
  CHECK_THAT(sampler.next(4).value(), ElementsAre(4, 5, 6, 7));
  CHECK_THAT(sampler.next(4).value(), ElementsAre(8, 9));
  CHECK(sampler.next(4) == std::nullopt);
  sampler.reset();
  CHECK_THAT(sampler.next(2).value(), ElementsAre(0, 1));
  sampler.reset(3);
  CHECK(sampler.size() == 3);
  CHECK_THAT(sampler.next(10).value(), ElementsAre(0, 1, 2));
}

TEST_CASE("DistributedSampler: an epoch set before the first batch counts and one set in between waits for the reset") {
  const std::vector<int64_t> epoch_0 = DistributedSampler(50).indices();
  DistributedSampler sampler(50);
  sampler.set_epoch(1);
  const std::vector<int64_t> epoch_1 = sampler.indices();
  REQUIRE(epoch_0 != epoch_1);
  std::vector<size_t> seen = sampler.next(20).value();
  sampler.set_epoch(0);
  const std::vector<size_t> rest = sampler.next(30).value();
  seen.insert(seen.end(), rest.begin(), rest.end());
  CHECK(std::vector<int64_t>(seen.begin(), seen.end()) == epoch_1);
  sampler.reset();
  CHECK(static_cast<int64_t>(sampler.next(1)->front()) == epoch_0.front());
}

TEST_CASE("DistributedSampler: refuses values that make no shard and names them") {
  CHECK_THROWS_MATCHES(DistributedSampler(4, {.num_replicas = 2, .rank = 2}), std::invalid_argument,
                       Message("Invalid rank 2, rank should be in the interval [0, 1]"));
  CHECK_THROWS_MATCHES(DistributedSampler(4, {.num_replicas = 2, .rank = -1}), std::invalid_argument,
                       Message("Invalid rank -1, rank should be in the interval [0, 1]"));
  CHECK_THROWS_MATCHES(DistributedSampler(4, {.num_replicas = 0}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid num_replicas 0")));
  CHECK_THROWS_MATCHES(DistributedSampler(-1), std::invalid_argument, MessageMatches(ContainsSubstring("-1")));
}

/// A dataset whose samples are their indices.
struct Indices {
  using BatchType = std::vector<size_t>;
  using BatchRequestType = std::vector<size_t>;
  static constexpr bool is_stateful = false;
  BatchType get_batch(const BatchRequestType& request) const { return request; }
};

TEST_CASE("DataLoader: follows set_epoch although it holds the sampler by value") {
  const auto workers = GENERATE(size_t{0}, size_t{2});
  CAPTURE(workers);
  for (int rank = 0; rank < 3; ++rank) {
    DistributedSampler sampler(100, {.num_replicas = 3, .rank = rank, .seed = 5});
    auto loader = torch::data::make_data_loader(Indices{}, sampler, torch::data::DataLoaderOptions(8).workers(workers));
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      sampler.set_epoch(epoch);
      std::vector<int64_t> seen;
      for (const std::vector<size_t>& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
      INFO("epoch " << epoch);
      CHECK(seen == sampler.indices());
      DistributedSampler fresh(100, {.num_replicas = 3, .rank = rank, .seed = 5 + static_cast<uint64_t>(epoch)});
      CHECK(seen == fresh.indices());
      for (const auto& earlier : epochs) CHECK(seen != earlier);
      epochs.push_back(seen);
    }
  }
}

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

TEST_CASE("DistributedSampler: continues after the last sample given out when saved at any point") {
  const DistributedSamplerOptions options{.num_replicas = 2, .rank = 1, .seed = 9};
  for (size_t done = 0; done <= 10; ++done) {
    DistributedSampler first(20, options);
    first.set_epoch(6);
    if (done > 0) first.next(done);
    DistributedSampler second(20, {.num_replicas = 2, .rank = 1});
    second.next(3);
    load(second, saved(first));
    CHECK(second.epoch() == 6);
    INFO(done << " samples done");
    CHECK(second.next(100) == first.next(100));
  }
}

TEST_CASE("DistributedSampler: a saved state goes on with another number of ranks and refuses another dataset") {
  DistributedSampler four(40, {.num_replicas = 4, .rank = 0});
  four.next(2);
  DistributedSampler two(40, {.num_replicas = 2, .rank = 0});
  two.set_epoch(3);
  load(two, saved(four));
  CHECK(two.epoch() == 0);
  CHECK(two.size() == 16);
  DistributedSampler small(4, {.num_replicas = 4, .rank = 0});
  CHECK_THROWS_MATCHES(load(small, saved(four)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("saved after 8 of 40 samples")));
}

}  // namespace
}  // namespace ddp
