// A job of two ranks is interrupted in mid-epoch and goes on with another number of ranks.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <map>
#include <mutex>

#include "checkpoint/checkpoint_manager.h"
#include "samplers/distributed_sampler.h"
#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

constexpr int64_t kSamples = 96;
constexpr int64_t kEpoch = 3;

class ResumedWith : public ::testing::TestWithParam<int> {};

TEST_P(ResumedWith, ThisManyRanksSeesEverySampleOfTheEpochOnce) {
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
  EXPECT_EQ(seen.size(), 24);
  test::run_ranks(GetParam(), [&](const GroupHandle& group) {
    test::Net net;
    DistributedSampler sampler(kSamples, {.num_replicas = group.size(), .rank = group.rank(), .seed = 99});
    CheckpointManager manager(folder / "run", group, {.notify = [](const std::string&) {}});
    const auto start = manager.load_latest({.model = net, .sampler = sampler});
    EXPECT_EQ(start->step, 3);
    EXPECT_EQ(sampler.epoch(), kEpoch);
    while (const auto batch = sampler.next(4)) see(*batch);
  });
  EXPECT_EQ(seen.size(), kSamples);
  for (const auto& [sample, times] : seen) EXPECT_EQ(times, 1) << "sample " << sample;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ResumedWith, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace ddp
