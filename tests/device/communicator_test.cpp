// A communicator of simulated devices is for one thread at a time, as NCCL's are.
#include "tests/support/device/communicator.h"

#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

// Each of two ranks reduces from two threads.
void reduce_from_two_threads(bool at_once) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto rank_body = [&](int rank) {
    const c10::Device own = device::device_at(rank);
    const c10::DeviceGuard current(own);
    const detail::GroupPlan plan{
        .info = {.rank = rank, .world_size = 2, .local_rank = rank, .local_world_size = 2},
        .device = own,
        .timeout = std::chrono::seconds(60),
        .store = store,
        .name = "group",
        .in_process = true,
    };
    const auto communicator = device::make_communicator(plan, store);
    const auto reduce = [&] {
      const c10::DeviceGuard here(own);
      for (int i = 0; i < 300; ++i) {
        std::vector<at::Tensor> tensors{at::ones({2}, at::TensorOptions(own))};
        communicator->allreduce(tensors, {})->wait();
      }
    };
    if (at_once) {
      std::thread other(reduce);
      reduce();
      other.join();
    } else {
      reduce();
      std::thread(reduce).join();
    }
    communicator->shutdown();
  };
  std::thread other(rank_body, 1);
  rank_body(0);
  other.join();
  device::drain();
}

TEST_CASE("Communicator: two threads that use it at the same time are a fault, and are none one after the other") {
  device::faults();
  reduce_from_two_threads(/*at_once=*/false);
  CHECK_THAT(device::faults(), IsEmpty());
  // On a busy machine one thread may be done before the other begins.
  std::vector<std::string> faults;
  for (int round = 0; round < 100 && faults.empty(); ++round) {
    reduce_from_two_threads(/*at_once=*/true);
    faults = device::faults();
  }
  CHECK_THAT(faults, Contains(ContainsSubstring("of a communicator that another thread is using, by ")));
}

}  // namespace
}  // namespace ddp::test
