// The loader over a sampler: the same batches whatever the workers, epochs, resume, errors with the sample's index.
#include <stdexcept>

#include <ddprun/data/batches.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/data/loader.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/data/cifar10_records.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::Message;
using test::ElementsAre;
using Numbers = std::vector<int64_t>;

/// Samples are their indices; sample `broken` cannot be read.
struct IndexSamples {
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

class LoaderTest {
 protected:
  const int workers_ = GENERATE(0, 1, 3);
  FIXTURE_INFO("workers: " << workers_);
};

TEST_CASE_METHOD(LoaderTest, "Loader: gives the sampler's order in batches epoch after epoch") {
  const IndexSamples dataset;
  DistributedSampler sampler(23, {.num_replicas = 2, .rank = 1, .seed = 3});
  Loader loader(dataset, sampler, {.batch_size = 5, .workers = workers_});
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    sampler.set_epoch(epoch);
    CHECK(loader.size() == 3);
    Numbers seen;
    for (const Numbers& batch : all(loader)) seen.insert(seen.end(), batch.begin(), batch.end());
    CHECK(seen == sampler.indices());
  }
}

TEST_CASE_METHOD(LoaderTest, "Loader: tells the dataset the epoch and leaves out a ragged batch if asked") {
  const ByEpoch dataset;
  SequentialSampler sampler(5);
  Loader loader(dataset, sampler, {.batch_size = 2, .drop_last = true, .workers = workers_});
  sampler.set_epoch(7);
  CHECK(loader.size() == 2);
  CHECK_THAT(all(loader), ElementsAre(ElementsAre(7000, 7001), ElementsAre(7002, 7003)));
}

TEST_CASE_METHOD(LoaderTest, "Loader: goes on in mid-epoch although it has read ahead") {
  const IndexSamples dataset;
  for (int64_t stop = 1; stop <= 4; ++stop) {
    DistributedSampler sampler(40, {.num_replicas = 2, .rank = 0, .seed = 1});
    Loader loader(dataset, sampler, {.batch_size = 5, .workers = workers_, .prefetch = 8});
    sampler.set_epoch(2);
    const std::vector<Numbers> whole = all(loader);
    SamplerState state;
    int64_t done = 0;
    for (auto& batch : loader) {
      CHECK(batch == whole[static_cast<size_t>(done)]);
      state = loader.state();
      if (++done == stop) break;
    }
    CHECK(state.consumed == stop * 5 * 2);
    DistributedSampler later(40, {.num_replicas = 2, .rank = 0});
    later.load_state(state);
    Loader rest(dataset, later, {.batch_size = 5, .workers = workers_});
    CHECK(all(rest) == std::vector<Numbers>(whole.begin() + stop, whole.end()));
  }
}

TEST_CASE_METHOD(LoaderTest, "Loader: the sampler counts what was given out and not what was read ahead") {
  const IndexSamples dataset;
  DistributedSampler sampler(40, {.num_replicas = 2, .rank = 1, .seed = 1});
  Loader loader(dataset, sampler, {.batch_size = 5, .workers = workers_, .prefetch = 8});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    int64_t given = 0;
    for ([[maybe_unused]] auto& batch : loader) {
      given += 10;
      CHECK(sampler.state() == SamplerState{.seed = 1, .epoch = epoch, .consumed = given, .length = 40});
      CHECK(loader.state() == sampler.state());
    }
    CHECK(given == 40);
    INFO("nothing is left of the epoch when its loop has ended");
    CHECK(sampler.state().consumed == 40);
  }
}

TEST_CASE_METHOD(LoaderTest, "Loader: the pass behind a resumed one is whole even if nobody calls set_epoch") {
  const IndexSamples dataset;
  SequentialSampler sampler(10);
  sampler.load_state({.consumed = 6, .length = 10});
  Loader loader(dataset, sampler, {.batch_size = 4, .workers = workers_});
  CHECK(loader.size() == 1);
  CHECK_THAT(all(loader), ElementsAre(ElementsAre(6, 7, 8, 9)));
  CHECK(loader.size() == 3);
  CHECK(all(loader).size() == 3);
}

TEST_CASE_METHOD(LoaderTest, "Loader: a pass goes on when a state is loaded in its middle and is what counts then") {
  const IndexSamples dataset;
  SequentialSampler sampler(12);
  Loader loader(dataset, sampler, {.batch_size = 3, .workers = workers_});
  sampler.set_epoch(5);
  Numbers firsts;
  for (auto& batch : loader) {
    firsts.push_back(batch.front());
    if (firsts.size() == 2) sampler.load_state({.seed = 9, .epoch = 4, .consumed = 3, .length = 12});
    if (firsts.size() == 3) {
      CHECK(sampler.state() == SamplerState{.epoch = 5, .consumed = 9, .length = 12});
    }
  }
  CHECK_THAT(firsts, ElementsAre(0, 3, 6, 9));
  CHECK(all(loader).size() == 4);
  // Left at once, the loaded state is where the next pass begins.
  for ([[maybe_unused]] auto& batch : loader) {
    sampler.load_state({.consumed = 6, .length = 12});
    break;
  }
  CHECK_THAT(all(loader), ElementsAre(ElementsAre(6, 7, 8), ElementsAre(9, 10, 11)));
}

TEST_CASE("Batches: of a sampler tell it what was given out") {
  const IndexSamples dataset;
  SequentialSampler sampler(10, {.num_replicas = 2, .rank = 1});
  std::vector<Numbers> seen;
  for (auto& batch : batches(dataset, sampler, 2)) {
    seen.push_back(batch);
    CHECK(sampler.state().consumed == std::min<int64_t>(5, 2 * std::ssize(seen)) * 2);
    if (seen.size() == 2) break;
  }
  sampler.load_state(sampler.state());
  CHECK(batches(dataset, sampler, 2).size() == 1);
  for (auto& batch : batches(dataset, sampler, 2)) seen.push_back(batch);
  CHECK_THAT(seen, ElementsAre(ElementsAre(1, 3), ElementsAre(5, 7), ElementsAre(9)));
  CHECK(batches(dataset, sampler, 2).size() == 3);
}

TEST_CASE_METHOD(LoaderTest, "Loader: an unreadable sample is named and the next pass works") {
  const IndexSamples dataset{.broken = 6};
  SequentialSampler sampler(20);
  Loader loader(dataset, sampler, {.batch_size = 4, .workers = workers_});
  for (int round = 0; round < 2; ++round) {
    std::vector<Numbers> seen;
    CHECK_THROWS_MATCHES(
        [&] {
          for (auto& batch : loader) seen.push_back(batch);
        }(),
        LoaderError, Message("sample 6: unreadable"));
    CHECK_THAT(seen, ElementsAre(ElementsAre(0, 1, 2, 3)));
  }
}

TEST_CASE_METHOD(LoaderTest,
                 "Loader: augmented images are the same whatever the workers and differ from epoch to epoch") {
  const test::TemporaryFolder folder;
  test::write_file(folder.path() / "data_batch_1.bin", test::records(0, 30));
  const Cifar10 images(folder.path(), Cifar10::Split::kTrain);
  const AugmentedImages augmented(images, {.seed = 4});
  SequentialSampler sampler(images.size());
  Loader loader(augmented, sampler, {.batch_size = 7, .workers = workers_});
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    int64_t first = 0;
    for (auto& batch : loader) {
      Numbers indices;
      for (int64_t i = 0; i < batch.target.numel(); ++i) indices.push_back(first + i);
      CHECK(batch.data.equal(augmented.get_batch(indices, epoch).data));
      CHECK_FALSE(batch.data.equal(augmented.get_batch(indices, epoch + 1).data));
      CHECK(batch.target.equal(images.get_batch(std::span<const int64_t>(indices)).target));
      first += batch.target.numel();
    }
    CHECK(first == 30);
  }
  const AugmentedImages unchanged(images, {.padding = 0, .flip = false});
  const Numbers some = {3, 1, 29};
  CHECK(unchanged.get_batch(some, 5).data.equal(images.get_batch(std::span<const int64_t>(some)).data));
  CHECK_THROWS_AS(unchanged.get_batch(Numbers{30}, 0), std::out_of_range);
}

TEST_CASE("Loader: numbers that make no loader are refused") {
  const IndexSamples dataset;
  SequentialSampler sampler(3);
  CHECK_THROWS_AS(Loader(dataset, sampler, {.batch_size = 0}), std::invalid_argument);
  CHECK_THROWS_AS(Loader(dataset, sampler, {.workers = -1}), std::invalid_argument);
  CHECK_THROWS_AS(Loader(dataset, sampler, {.prefetch = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
