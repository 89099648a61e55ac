// DistributedDataParallel over simulated devices: the CPU's bits, whatever the order in which streams come.
#include <ATen/Context.h>
#include <torch/headeronly/version.h>

#include <mutex>
#include <string>
#include <vector>

#include <ddprun/ddp/comm_hooks.h>

#include "tests/device/schedules.h"
#include "tests/device/training.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/rank_checks.h"

namespace ddp::test {
namespace {

using Catch::Matchers::IsEmpty;

// Of each of five precisions on each of two numbers of devices, and of a net that takes longer; the slow tests take
// more.
constexpr int kUsual = 10;
constexpr int kFew = 3;

template <typename Net>
State state_of_rank_0(const std::vector<c10::Device>& devices, const char* backend,
                      const std::function<Net()>& construct, const Work& work) {
  return result_of_rank_0(devices, backend,
                          [&](const GroupHandle& group) { return train<Net>(group, construct, work); });
}

template <typename Net>
void expect_one_result(const std::function<Net()>& construct, Work work, int usual) {
  uint64_t seed = seed_before();
  for (const int size : {2, 4}) {
    for (const char* level : kLevels) {
      work.level = level;
      INFO(size << " devices, " << level);
      device::run_in_program_order();
      const State expected = state_of_rank_0<Net>(simulated(size), kOnDevices, construct, work);
      REQUIRE(has_trained<Net>(expected, construct));
      for (int i = 0; i < schedules(usual); ++i) {
        INFO("schedule " << ++seed);
        device::set_schedule(seed);
        const State state = state_of_rank_0<Net>(simulated(size), kOnDevices, construct, work);
        REQUIRE(same_bits(state, expected));
        REQUIRE_THAT(device::faults(), IsEmpty());
        device::drain();
      }
    }
  }
}

// Autocast has other lists for the CPU, and SyncBatchNorm sums in double there: those have no such twin.
template <typename Net>
void expect_the_cpus_bits(const std::function<Net()>& construct, Work work) {
  for (const int size : {2, 4}) {
    for (const char* level : {"O0", "O2", "O3"}) {
      work.level = level;
      INFO(size << " devices, " << level);
      const std::vector<c10::Device> on_cpu(static_cast<size_t>(size), c10::kCPU);
      const State expected = state_of_rank_0<Net>(on_cpu, "shm", construct, work);
      device::set_schedule(1);
      CHECK(same_bits(state_of_rank_0<Net>(simulated(size), kOnDevices, construct, work), expected));
    }
  }
}

const Work kImages{.input = {2, 3, 32, 32}};
const Work kSmallImages{.input = {2, 3, 8, 8}};
const Work kSequences{.input = {5, 3, TransformerImpl::kWidth}, .batch_dimension = 1};

models::LeNet make_lenet() {
  return models::LeNet(kClasses);
}
Transformer make_transformer() {
  return Transformer();
}
SlimResNet18 make_slim_resnet() {
  return SlimResNet18();
}
RecomputedResNet18 make_recomputed_resnet() {
  return RecomputedResNet18();
}
models::ResNet18 make_resnet() {
  return models::ResNet18(models::ResNetOptions{.num_classes = kClasses});
}

class OnDevices {
 protected:
  OnDevices() {
    device::faults();
    // oneDNN has no convolutions of halves but reference ones, which took half of these tests' time.
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~OnDevices() { device::drain(); }
};

TEST_CASE_METHOD(OnDevices, "Ddp: LeNet has the CPU's bits on 2 and 4 devices") {
  expect_the_cpus_bits<models::LeNet>(make_lenet, kImages);
}
TEST_CASE_METHOD(OnDevices, "Ddp: a transformer has the CPU's bits on 2 and 4 devices") {
  expect_the_cpus_bits<Transformer>(make_transformer, kSequences);
}
TEST_CASE_METHOD(OnDevices, "Ddp: every option has the CPU's bits on 2 and 4 devices") {
  struct Case {
    const char* name;
    std::function<DdpOptions(const GroupHandle&)> options;
  };
  const auto plain = [](DdpOptions options) { return [=](const GroupHandle&) { return options; }; };
  const auto hook = [](CommHook (*make)(const GroupHandle&)) {
    return [=](const GroupHandle& group) { return DdpOptions{.comm_hook = make(group)}; };
  };
  std::vector<Case> cases{
      {"copies of gradients", plain({.gradient_as_bucket_view = false})},
      {"unused parameters", plain({.find_unused_parameters = true})},
      {"static graph", plain({.static_graph = true})},
      {"delayed",
       plain({.delayed = {.names = {"module.fc3.weight", "module.fc2.bias"}, .trigger = "module.conv1.weight"}})},
      {"buckets by names", plain({.bucket_ends = {"module.fc2.weight"}})},
      {"checked", plain({.check_gradients = true})},
      {"fp16", hook(hooks::fp16_compress)},
      {"bf16", hook(hooks::bf16_compress)},
      {"PowerSGD",
       [](const GroupHandle& group) {
         return DdpOptions{.comm_hook = hooks::power_sgd(make_power_sgd_state(group, {.start_iteration = 2}))};
       }},
  };
  if (TORCH_VERSION_MINOR >= 12) cases.push_back({"gradients copied together", plain({.batched_grad_copy = true})});
  if (TORCH_VERSION_MINOR >= 15) cases.push_back({"buckets that come and go", plain({.lazy_bucket_allocation = true})});
  for (const int size : {2, 4}) {
    for (const Case& one : cases) {
      INFO(size << " devices, " << one.name);
      const Work work{.input = {2, 3, 32, 32}, .steps = 4, .options = one.options};
      const std::vector<c10::Device> on_cpu(static_cast<size_t>(size), c10::kCPU);
      const State expected = state_of_rank_0<models::LeNet>(on_cpu, "shm", make_lenet, work);
      REQUIRE(has_trained<models::LeNet>(expected, make_lenet));
      for (uint64_t seed = 0; seed < 3; ++seed) {
        device::set_schedule(seed);
        CHECK(same_bits(state_of_rank_0<models::LeNet>(simulated(size), kOnDevices, make_lenet, work), expected));
        CHECK_THAT(device::faults(), IsEmpty());
        device::drain();
      }
    }
  }
}
TEST_CASE_METHOD(OnDevices, "Ddp: LeNet has one result in every schedule and precision") {
  expect_one_result<models::LeNet>(make_lenet, kImages, kUsual);
}
TEST_CASE_METHOD(OnDevices, "Ddp: a transformer has one result in every schedule and precision") {
  expect_one_result<Transformer>(make_transformer, kSequences, kUsual);
}
TEST_CASE_METHOD(OnDevices,
                 "Ddp: ResNet-18's layers with SyncBatchNorm have one result in every schedule and precision") {
  expect_one_result<SlimResNet18>(make_slim_resnet, kSmallImages, kFew);
}
TEST_CASE_METHOD(OnDevices, "Ddp: regions with SyncBatchNorm have one result in every schedule and precision") {
  expect_one_result<RecomputedResNet18>(make_recomputed_resnet, kSmallImages, kFew);
}
TEST_CASE_METHOD(OnDevices, "Ddp: ResNet-18 with SyncBatchNorm has one result in every schedule and precision",
                 "[.slow]") {
  expect_one_result<models::ResNet18>(make_resnet, {.input = {2, 3, 16, 16}, .steps = 1}, kFew);
}

}  // namespace
}  // namespace ddp::test
