// A job with a loader saves in mid-epoch and goes on with any number of ranks: the samples that were left come, each
// once, whichever loader it is and whether its sampler or itself is what the checkpoint names.
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <torch/serialize.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/data/batches.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/loader.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>
#include <ddprun/samplers/stream_sampler.h>

#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::AllMatch;
using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;

constexpr int64_t kLoadedSamples = 96;  // 2 and 3 ranks, and what they leave of it, come out even
constexpr int64_t kLoadedEpoch = 2;
constexpr int64_t kBatch = 4;

// Samples are their indices.
struct Numbers {
  Batch get_batch(std::span<const int64_t> indices) const {
    const auto values = at::tensor(std::vector<int64_t>(indices.begin(), indices.end()), at::kLong);
    return {.data = values, .target = values};
  }
};

// A placement whose copies run while the loop's body uses the previous batch: the loader reads ahead.
class CopiesAhead {
 public:
  bool is_asynchronous() const { return true; }
  Batch prepare(Batch batch) const { return batch; }
  void start(Batch batch) { copy_ = std::move(batch); }
  Batch finish() { return std::exchange(copy_, {}); }

 private:
  Batch copy_;
};

enum class Way { kLoader, kWorkers, kDeviceLoader, kCopies, kBatches };

std::string name_of(Way way) {
  return std::vector<std::string>{"Loader", "Workers", "DeviceLoader", "Copies", "Batches"}[static_cast<size_t>(way)];
}

// Calls `body(range, state)` with the loader of that kind and the state that names it, or its sampler.
template <typename Body>
void with_loader(Way way, bool name_the_loader, EpochSampler& sampler, const Body& body) {
  const Numbers dataset;
  const LoaderOptions options{.batch_size = kBatch, .workers = way == Way::kLoader ? 0 : 2, .prefetch = 6};
  const c10::Device cpu(c10::kCPU);
  const auto run = [&](auto& loader) {
    body(loader, name_the_loader ? TrainingState{.sampler = loader} : TrainingState{.sampler = sampler});
  };
  if (way == Way::kBatches) {
    auto range = batches(dataset, sampler, kBatch);
    body(range, TrainingState{.sampler = sampler});
  } else if (way == Way::kDeviceLoader) {
    DeviceLoader loader(dataset, sampler, cpu, options);
    run(loader);
  } else if (way == Way::kCopies) {
    Loader loader(dataset, sampler, std::make_unique<CopiesAhead>(), options);
    run(loader);
  } else {
    Loader loader(dataset, sampler, options);
    run(loader);
  }
}

TEST_CASE("LoaderResume: sees exactly the samples that were left each once") {
  const auto way = GENERATE(Way::kLoader, Way::kWorkers, Way::kDeviceLoader, Way::kCopies, Way::kBatches);
  const bool name_the_loader = GENERATE(false, true);
  const int ranks_before = GENERATE(1, 2, 3);
  const int ranks_after = GENERATE(1, 2, 3);
  CAPTURE(name_of(way), name_the_loader, ranks_before, ranks_after);
  const test::TemporaryFolder folder;
  std::mutex mutex;
  std::map<int64_t, int> seen;
  const auto see = [&](const Batch& batch) {
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < batch.data.numel(); ++i) ++seen[batch.data[i].item<int64_t>()];
  };
  test::run_ranks(ranks_before, [&](const GroupHandle& group) {
    DistributedSampler sampler(kLoadedSamples, {.num_replicas = group.size(), .rank = group.rank(), .seed = 11});
    CheckpointManager manager(folder / "run", group);
    with_loader(way, name_the_loader, sampler, [&](auto& loader, const TrainingState& state) {
      for (int64_t epoch = 0; epoch <= kLoadedEpoch; ++epoch) {
        sampler.set_epoch(epoch);
        int64_t step = 0;
        for (auto& batch : loader) {
          if (epoch == kLoadedEpoch) see(batch);
          if (++step == 3 && epoch == kLoadedEpoch) break;
        }
      }
      manager.save(3, state);
    });
  });
  CHECK(static_cast<int64_t>(seen.size()) == 3 * kBatch * ranks_before);
  test::run_ranks(ranks_after, [&](const GroupHandle& group) {
    DistributedSampler sampler(kLoadedSamples, {.num_replicas = group.size(), .rank = group.rank(), .seed = 99});
    CheckpointManager manager(folder / "run", group, {.notify = [](const std::string&) {}});
    with_loader(way, name_the_loader, sampler, [&](auto& loader, const TrainingState& state) {
      RANK_REQUIRE(manager.load_latest(state).has_value());
      RANK_CHECK(sampler.epoch() == kLoadedEpoch);
      sampler.set_epoch(sampler.epoch());
      for (auto& batch : loader) see(batch);
      sampler.set_epoch(kLoadedEpoch + 1);
      RANK_INFO("the next epoch is whole again");
      RANK_CHECK(loader.size() == kLoadedSamples / kBatch / group.size());
    });
  });
  CHECK(seen.size() == kLoadedSamples);
  for (const auto& [sample, times] : seen) {
    INFO("sample " << sample);
    CHECK(times == 1);
  }
}

// Samples of 6 parts of 16 are their numbers.
struct StreamedNumbers {
  struct Walk {
    int64_t next_number;
    int64_t end;
    std::optional<Batch> next() {
      if (next_number == end) return std::nullopt;
      const auto value = at::scalar_tensor(next_number++, at::kLong);
      return Batch{.data = value, .target = value};
    }
  };
  int64_t parts() const { return 6; }
  Walk open(int64_t part) const { return {.next_number = 16 * part, .end = 16 * (part + 1)}; }
};

TEST_CASE("LoaderResume: sees exactly the samples of a stream that were left each once") {
  const int ranks_before = GENERATE(1, 2, 3);
  const int ranks_after = GENERATE(1, 2, 3);
  CAPTURE(ranks_before, ranks_after);
  const test::TemporaryFolder folder;
  std::mutex mutex;
  std::map<int64_t, int> seen;
  const StreamedNumbers dataset;
  const LoaderOptions options{.batch_size = kBatch, .workers = 2, .prefetch = 6};
  const auto run = [&](const GroupHandle& group, bool is_first) {
    StreamSampler sampler({.buffer = 9, .seed = 11, .num_replicas = group.size(), .rank = group.rank()});
    Loader loader(dataset, sampler, options);
    const TrainingState state{.sampler = loader};
    CheckpointManager manager(folder / "run", group, {.notify = [](const std::string&) {}});
    if (!is_first) {
      RANK_REQUIRE(manager.load_latest(state).has_value());
      RANK_CHECK(sampler.epoch() == kLoadedEpoch);
    }
    sampler.set_epoch(kLoadedEpoch);
    int64_t step = 0;
    for (auto& batch : loader) {
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < batch.data.numel(); ++i) ++seen[batch.data[i].item<int64_t>()];
      if (++step == 3 && is_first) break;
    }
    if (is_first) manager.save(3, state);
  };
  test::run_ranks(ranks_before, [&](const GroupHandle& group) { run(group, true); });
  CHECK(static_cast<int64_t>(seen.size()) == 3 * kBatch * ranks_before);
  test::run_ranks(ranks_after, [&](const GroupHandle& group) { run(group, false); });
  CHECK(seen.size() == kLoadedSamples);
  for (const auto& [sample, times] : seen) {
    INFO("sample " << sample);
    CHECK(times == 1);
  }
}

// Rank 0 has a batch more than rank 1, whose third save is therefore one of the next pass.
TEST_CASE("LoaderResume: saves of ranks that stand in different passes are refused and those at the end are not") {
  for (const bool sets_epochs : {true, false}) {
    const test::TemporaryFolder folder;
    std::mutex mutex;
    std::vector<std::string> refusals;
    test::run_ranks(2, [&](const GroupHandle& group) {
      SequentialSampler sampler(13, group);
      const Numbers dataset;
      Loader loader(dataset, sampler, {.batch_size = 3});
      CheckpointManager manager(folder / "run", group);
      int64_t step = 0;
      for (int64_t epoch = 0; step < 4; ++epoch) {
        if (sets_epochs) sampler.set_epoch(epoch);
        for ([[maybe_unused]] auto& batch : loader) {
          if (step == 4) break;
          const auto refusal = test::error_of([&] { manager.save(step, {.sampler = loader}); });
          ++step;
          const std::lock_guard lock(mutex);
          if (refusal != "no error") refusals.push_back(refusal);
        }
      }
      const auto infos = manager.list();
      RANK_INFO("of the first two batches, which both ranks have");
      RANK_CHECK(infos.size() == 2U);
      sampler.set_epoch(9);
      for ([[maybe_unused]] auto& batch : loader) {
      }
      manager.save(9, {.sampler = loader});
    });
    REQUIRE(refusals.size() == 4U);
    CHECK_THAT(refusals, AllMatch(ContainsSubstring("on rank 1: its sampler is in epoch ")));
    CHECK_THAT(refusals,
               Contains(ContainsSubstring("after 6 of 13 samples") && ContainsSubstring("after 14 of 13 samples")));
  }
}

}  // namespace
}  // namespace ddp
