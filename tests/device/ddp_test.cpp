// DistributedDataParallel over simulated devices: the CPU's bits, whatever the order in which streams come.
#include <ATen/ops/equal.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <ddprun/comm/spawn.h>

#include "tests/device/training.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/rank_checks.h"

namespace ddp::test {
namespace {

using Catch::Matchers::IsEmpty;
using State = std::vector<at::Tensor>;

int schedules(int usual) {
  const char* text = std::getenv("DDPRUN_TEST_SCHEDULES");
  return text == nullptr ? usual : std::atoi(text);
}

template <typename Net>
State state_of_rank_0(const std::vector<c10::Device>& devices, const char* backend,
                      const std::function<Net()>& construct, const Work& work) {
  State state;
  spawn(static_cast<int>(devices.size()),
        [&](const GroupHandle& group) {
          State own = train<Net>(group, construct, work);
          if (group.rank() == 0) state = std::move(own);
        },
        {.backend = backend, .timeout = std::chrono::seconds(100), .devices = devices});
  return state;
}

std::vector<c10::Device> simulated(int size) {
  std::vector<c10::Device> devices;
  for (int i = 0; i < size; ++i) devices.push_back(device::device_at(i));
  return devices;
}

bool same_bits(const State& a, const State& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

// `levels` in turn, over a number of schedules.
template <typename Net>
void expect_one_result(const std::function<Net()>& construct, Work work, int size, int usual_schedules) {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    work.level = level;
    INFO(size << " devices, " << level);
    device::run_in_program_order();
    const State expected = state_of_rank_0<Net>(simulated(size), "cpu:gloo,cuda:nccl", construct, work);
    const int count = (schedules(usual_schedules) + 3) / 4;
    for (int seed = 0; seed < count; ++seed) {
      INFO("schedule " << seed);
      device::set_schedule(static_cast<uint64_t>(seed));
      const State state = state_of_rank_0<Net>(simulated(size), "cpu:gloo,cuda:nccl", construct, work);
      REQUIRE(same_bits(state, expected));
      REQUIRE_THAT(device::faults(), IsEmpty());
      device::drain();
    }
  }
  device::drain();
}

template <typename Net>
void expect_the_cpus_bits(const std::function<Net()>& construct, const Work& work, int size) {
  const State expected =
      state_of_rank_0<Net>(std::vector<c10::Device>(static_cast<size_t>(size), c10::kCPU), "shm", construct, work);
  device::set_schedule(1);
  const State state = state_of_rank_0<Net>(simulated(size), "cpu:gloo,cuda:nccl", construct, work);
  REQUIRE(state.size() == expected.size());
  CHECK(same_bits(state, expected));
}

const Work kImages{.input = {2, 3, 32, 32}};
const Work kSmallImages{.input = {2, 3, 8, 8}};
const Work kSequences{.input = {5, 3, TransformerImpl::kWidth}, .batch_dimension = 1};

template <typename Net>
std::function<Net()> plain() {
  return [] { return Net(); };
}

class OnDevices {
 protected:
  OnDevices() { device::faults(); }
};

TEST_CASE_METHOD(OnDevices, "Ddp: LeNet has the CPU's bits on 2 and 4 devices") {
  expect_the_cpus_bits<models::LeNet>([] { return models::LeNet(kClasses); }, kImages, 2);
  expect_the_cpus_bits<models::LeNet>([] { return models::LeNet(kClasses); }, kImages, 4);
}
TEST_CASE_METHOD(OnDevices, "Ddp: a transformer has the CPU's bits on 2 and 4 devices") {
  expect_the_cpus_bits<Transformer>(plain<Transformer>(), kSequences, 2);
  expect_the_cpus_bits<Transformer>(plain<Transformer>(), kSequences, 4);
}
TEST_CASE_METHOD(OnDevices, "Ddp: LeNet has one result in every schedule and precision") {
  for (const int size : {2, 4}) {
    expect_one_result<models::LeNet>([] { return models::LeNet(kClasses); }, kImages, size, 50);
  }
}
TEST_CASE_METHOD(OnDevices, "Ddp: a transformer has one result in every schedule and precision") {
  for (const int size : {2, 4}) expect_one_result<Transformer>(plain<Transformer>(), kSequences, size, 50);
}
TEST_CASE_METHOD(OnDevices, "Ddp: residual blocks with SyncBatchNorm have one result in every schedule and precision") {
  for (const int size : {2, 4}) expect_one_result<SmallResNet>(plain<SmallResNet>(), kSmallImages, size, 50);
}
TEST_CASE_METHOD(OnDevices, "Ddp: ResNet-18 with SyncBatchNorm has one result in every schedule and precision",
                 "[.slow]") {
  for (const int size : {2, 4}) {
    expect_one_result<models::ResNet18>([] { return models::ResNet18(models::ResNetOptions{.num_classes = kClasses}); },
                                        {.input = {2, 3, 16, 16}, .steps = 1}, size, 4);
  }
}

}  // namespace
}  // namespace ddp::test
