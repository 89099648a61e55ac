// Regions of activation checkpointing whose tensors lie on two devices: in a backward each device has a thread of its
// own, and both ask one frame for tensors.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/recompute/recompute.h>
#include <ddprun/recompute/save_on_cpu.h>

#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp::test {
namespace {

using Catch::Matchers::IsEmpty;
using Tensors = std::vector<at::Tensor>;
constexpr int kRounds = 50;
using TwoDevices = std::function<Tensors(const at::Tensor& first, const at::Tensor& second)>;

at::Tensor leaf(int device) {
  return at::rand({32}).to(device::device_at(device)).requires_grad_();
}

// Ten saved tensors on each device, of which one is a leaf; the last operators take from both.
Tensors both(const at::Tensor& first, const at::Tensor& second) {
  at::Tensor x = first;
  at::Tensor y = second;
  for (int i = 0; i < 5; ++i) {
    x = x.sin().exp() * 0.5;
    y = y.cos().exp() * 0.5;
  }
  return {x + y.to(x.device()), y + x.to(y.device())};
}

// `function` as one region; `runs` counts its calls.
Tensors as_region(const TwoDevices& function, std::atomic<int>& runs, const at::Tensor& first,
                  const at::Tensor& second) {
  return checkpoint(
      [function, &runs](const at::Tensor& x, const at::Tensor& y) {
        ++runs;
        return function(x, y);
      },
      first, second);
}

// Gradients of both inputs, on the CPU. The sum takes what the devices' threads bring in a fixed order.
Tensors gradients(const Tensors& results, const Tensors& inputs, bool keeps_graph = false) {
  const Tensors found = torch::autograd::grad({results[0].sum(), results[1].sum()}, inputs, {}, keeps_graph);
  return {found[0].cpu(), found[1].cpu()};
}

bool same(const Tensors& left, const Tensors& right) {
  return at::equal(left.at(0), right.at(0)) && at::equal(left.at(1), right.at(1));
}

class RegionsOnDevices {
 protected:
  RegionsOnDevices() { device::faults(); }
  ~RegionsOnDevices() { device::drain(); }

  // In several schedules: the gradients without regions, of a forward and two backwards.
  static void expect_the_bits(const TwoDevices& function, const TwoDevices& with_regions) {
    const Tensors inputs{leaf(0), leaf(1)};
    const Tensors expected = gradients(function(inputs[0], inputs[1]), inputs);
    for (int i = 0; i < kRounds; ++i) {
      device::set_schedule(static_cast<uint64_t>(i));
      const Tensors results = with_regions(inputs[0], inputs[1]);
      REQUIRE(same(gradients(results, inputs, /*keeps_graph=*/true), expected));
      REQUIRE(same(gradients(results, inputs), expected));
      REQUIRE_THAT(device::faults(), IsEmpty());
    }
  }
};

TEST_CASE_METHOD(RegionsOnDevices, "Regions: the threads of two devices ask for one region's tensors at once") {
  std::atomic<int> runs = 0;
  expect_the_bits(both, [&runs](const auto& x, const auto& y) { return as_region(both, runs, x, y); });
  CHECK(runs == kRounds * 3);
}

TEST_CASE_METHOD(RegionsOnDevices, "Regions: the threads of two devices in regions within a region") {
  std::atomic<int> runs = 0;
  const TwoDevices twice = [](const at::Tensor& x, const at::Tensor& y) {
    const Tensors middle = both(x, y);
    return both(middle[1].to(x.device()), middle[0].to(y.device()));
  };
  const TwoDevices nested = [&runs](const at::Tensor& x, const at::Tensor& y) {
    return checkpoint(
        [&runs](const at::Tensor& first, const at::Tensor& second) {
          const Tensors middle = as_region(both, runs, first, second);
          return as_region(both, runs, middle[1].to(first.device()), middle[0].to(second.device()));
        },
        x, y);
  };
  expect_the_bits(twice, nested);
  // Two first runs. For each backward the outer region's second run, which ends where the second inner region begins,
  // and each inner region's own.
  CHECK(runs == kRounds * (2 + 2 * (1 + 2)));
}

TEST_CASE_METHOD(RegionsOnDevices, "Regions: a backward inside a region goes through two devices") {
  std::atomic<int> runs = 0;
  const TwoDevices with_slope = [](const at::Tensor& x, const at::Tensor& y) {
    const Tensors results = both(x, y);
    const Tensors slopes = torch::autograd::grad({results[0].sum(), results[1].sum()}, {x, y}, {}, true, true);
    return Tensors{results[0] * slopes[0].sin(), results[1] * slopes[1].sin()};
  };
  expect_the_bits(with_slope, [&](const auto& x, const auto& y) { return as_region(with_slope, runs, x, y); });
}

TEST_CASE_METHOD(RegionsOnDevices, "Regions: two threads go backward through one region on two devices") {
  const Tensors inputs{leaf(0), leaf(1)};
  const Tensors expected = gradients(both(inputs[0], inputs[1]), inputs);
  std::atomic<int> runs = 0;
  for (int i = 0; i < 30; ++i) {
    device::set_schedule(static_cast<uint64_t>(i));
    const Tensors results = as_region(both, runs, inputs[0], inputs[1]);
    std::array<Tensors, 2> found;
    std::thread other([&] { found[0] = gradients(results, inputs, /*keeps_graph=*/true); });
    found[1] = gradients(results, inputs, /*keeps_graph=*/true);
    other.join();
    REQUIRE(same(found[0], expected));
    REQUIRE(same(found[1], expected));
  }
  CHECK(runs == 30 * 3);
}

TEST_CASE_METHOD(RegionsOnDevices, "Regions: save_on_cpu with page-locked memory, alone and around a region") {
  const Tensors inputs{leaf(0), leaf(1)};
  const Tensors expected = gradients(both(inputs[0], inputs[1]), inputs);
  std::atomic<int> runs = 0;
  for (int i = 0; i < kRounds; ++i) {
    device::set_schedule(static_cast<uint64_t>(i));
    for (const bool pins : {false, true}) {
      for (const bool has_region : {false, true}) {
        device::forget_counts();
        Tensors results;
        {
          const save_on_cpu scope({.pin_memory = pins});
          results = has_region ? as_region(both, runs, inputs[0] * 1, inputs[1] * 1) : both(inputs[0], inputs[1]);
        }
        INFO("page-locked: " << pins << ", region: " << has_region << ", schedule " << i);
        REQUIRE(device::counts().to_host >= (has_region ? 2 : 18));
        REQUIRE((device::counts().pageable == 0) == pins);
        REQUIRE(same(gradients(results, inputs), expected));
        // CUDA's driver takes a copy of pageable memory before the call returns.
        std::vector<std::string> faults = device::faults();
        if (!pins)
          std::erase_if(faults,
                        [](const std::string& text) { return text.find("pageable memory") != std::string::npos; });
        REQUIRE_THAT(faults, IsEmpty());
      }
    }
  }
}

}  // namespace
}  // namespace ddp::test
