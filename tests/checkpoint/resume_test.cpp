// A job of two ranks is interrupted in mid-epoch and goes on with another number of ranks.
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

constexpr int64_t kSamples = 96;
constexpr int64_t kEpoch = 3;

class ResumedWith {
 protected:
  const int ranks_ = GENERATE(1, 2, 3, 4);
  FIXTURE_INFO("ranks: " << ranks_);
};

TEST_CASE_METHOD(ResumedWith, "ResumedWith: this many ranks sees every sample of the epoch once") {
  const test::TemporaryFolder folder;
  std::mutex mutex;
  std::map<size_t, int> seen;
  const auto see = [&](const std::vector<size_t>& batch) {
    const std::lock_guard lock(mutex);
    for (const auto sample : batch) ++seen[sample];
  };
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::Net net;
    DistributedSampler sampler(kSamples, {.num_replicas = group.size(), .rank = group.rank(), .seed = 11});
    sampler.set_epoch(kEpoch);
    CheckpointManager manager(folder / "run", group);
    sampler.reset();
    for (int step = 0; step < 3; ++step) see(*sampler.next(4));
    manager.save(3, {.model = net, .sampler = sampler});
  });
  CHECK(seen.size() == 24);
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    test::Net net;
    DistributedSampler sampler(kSamples, {.num_replicas = group.size(), .rank = group.rank(), .seed = 99});
    CheckpointManager manager(folder / "run", group, {.notify = [](const std::string&) {}});
    const auto start = manager.load_latest({.model = net, .sampler = sampler});
    RANK_CHECK(start->step == 3);
    RANK_CHECK(sampler.epoch() == kEpoch);
    while (const auto batch = sampler.next(4)) see(*batch);
  });
  CHECK(seen.size() == kSamples);
  for (const auto& [sample, times] : seen) {
    INFO("sample " << sample);
    CHECK(times == 1);
  }
}

}  // namespace
}  // namespace ddp
