// On a machine with a GPU, one process: half precision autocast, GradScaler and the levels, and that nothing waits.
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <limits>

#include <ddprun/amp/amp.h>
#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/optim/optimizers.h>

#include "examples/models/lenet.h"
#include "tests/amp/waits.h"
#include "tests/support/catch.h"

namespace ddp::amp_on_gpu {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

at::Tensor ones_on(c10::Device device) {
  return at::ones({2, 2}, at::TensorOptions(device));
}

TEST_CASE("OnGpu: autocast is half by default and leaves the CPU alone") {
  const Autocast autocast(kGpu);
  CHECK(at::mm(ones_on(kGpu), ones_on(kGpu)).scalar_type() == c10::kHalf);
  CHECK(at::mm(ones_on(c10::kCPU), ones_on(c10::kCPU)).scalar_type() == c10::kFloat);
}

TEST_CASE("OnGpu: an overflow is skipped without a read") {
  for (const bool overflow : {false, true}) {
    at::Tensor weight = at::ones({2}, at::TensorOptions(kGpu)).requires_grad_();
    optim::SGD optimizer({weight}, optim::SGDOptions(0.5));
    GradScaler scaler;
    scaler.scale(at::ones({}, at::TensorOptions(kGpu)));
    weight.mutable_grad() =
        at::full({2}, overflow ? std::numeric_limits<float>::infinity() : 65536.F, weight.options());
    {
      const test::HostReads reads;
      scaler.step(optimizer);
      scaler.update();
      CHECK(reads.count() == 0);
    }
    CHECK(scaler.get_scale() == (overflow ? 32768 : 65536));
    CHECK(weight[0].item<double>() == (overflow ? 1 : 0.5));
  }
}

template <typename Optimizer>
void expect_learning(const char* level, c10::ScalarType dtype) {
  models::LeNet net;
  net->to(kGpu);
  Optimizer optimizer(net->parameters(), 0.05);
  const auto amp = amp::initialize(net, optimizer, {.opt_level = level, .dtype = dtype});
  auto model = amp.model(net);
  const at::Tensor x = at::randn({32, 3, 32, 32}, at::TensorOptions(kGpu));
  const at::Tensor y = at::full({32}, 3, at::TensorOptions(kGpu).dtype(c10::kLong));
  double first = 0, last = 0;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto autocast = amp.autocast();
      loss = torch::nn::functional::cross_entropy(model(x), y);
    }
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  INFO(level << " " << c10::toString(dtype));
  CHECK(last < first);
}

TEST_CASE("OnGpu: every level learns") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    for (const auto dtype : {c10::kHalf, c10::kBFloat16}) {
      expect_learning<torch::optim::SGD>(level, dtype);
      expect_learning<optim::SGD>(level, dtype);
    }
  }
}

// Parameters of two devices in one optimizer: one flag each, added up where the scale is.
TEST_CASE("OnGpu: an overflow on one device skips the whole step") {
  at::Tensor here = at::ones({2}).requires_grad_();
  at::Tensor there = at::ones({2}, at::TensorOptions(kGpu)).requires_grad_();
  torch::optim::SGD optimizer({here, there}, 0.5);
  GradScaler scaler;
  scaler.scale(at::ones({}, at::TensorOptions(kGpu)));
  here.mutable_grad() = at::full({2}, std::numeric_limits<float>::infinity());
  there.mutable_grad() = at::full({2}, 1.0, there.options());
  scaler.step(optimizer);
  scaler.update();
  CHECK(there[0].item<double>() == 1);
  CHECK(scaler.get_scale() == 32768);
}

}  // namespace
}  // namespace ddp::amp_on_gpu
