// No copy towards the CPU goes unawaited: the host would read what was there before. What asks for the copies is the
// same code for every device, so this can be seen without a GPU.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/ddp/data_parallel.h>
#include <ddprun/detail/comm/device_copy.h>
#include <ddprun/optim/clip_grad.h>
#include <ddprun/optim/larc.h>
#include <ddprun/optim/optimizers.h>

#include "amp/unscale.h"
#include "tests/support/catch.h"
#include "tests/support/copies_to_host.h"

namespace ddp {
namespace {

using test::UnawaitedCopiesToHost;

at::Tensor flag(double value) {
  return at::full({}, value, at::kFloat);
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(4, 2)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear = nullptr;
};
TORCH_MODULE(Net);

TEST_CASE("DeviceCopies: only those towards a device may return early") {
  CHECK_FALSE(may_return_before_copied(c10::kCPU));
  CHECK(may_return_before_copied(c10::Device(c10::kCUDA, 1)));
  const UnawaitedCopiesToHost copies;
  const auto tensor = at::ones({3});
  const auto target = at::zeros({3});
  CHECK(to_device(tensor, c10::kCPU).is_same(tensor));
  CHECK_FALSE(copy_on_device(tensor, c10::kCPU).is_same(tensor));
  copy_into(target, tensor);
  CHECK(target.equal(tensor));
  CHECK(to_device(tensor, c10::kMeta).is_meta());
  CHECK(copies.count() == 0);
  tensor.to(at::Device(c10::kCPU), /*non_blocking=*/true);
  INFO("the counter works");
  CHECK(copies.count() > 0);
}

TEST_CASE("DeviceCopies: a scaled step makes no unawaited ones") {
  const UnawaitedCopiesToHost copies;
  const auto parameter = at::ones({3}).requires_grad_();
  optim::Larc<optim::SGD> larc(std::vector{parameter}, optim::SGDOptions(0.1).momentum(0.9));
  optim::Adam adam({parameter}, optim::AdamOptions(0.1));
  for (optim::FusedOptimizer* optimizer :
       {static_cast<optim::FusedOptimizer*>(&larc), static_cast<optim::FusedOptimizer*>(&adam)}) {
    parameter.mutable_grad() = at::ones({3});
    optim::clip_grad_norm_({parameter}, 1, {.grad_scale = flag(4)});
    optimizer->step_scaled({.grad_scale = flag(4), .found_inf = flag(0)});
  }
  CHECK(copies.count() == 0);
}

TEST_CASE("DeviceCopies: scalers make no unawaited ones") {
  const UnawaitedCopiesToHost copies;
  Net net;
  optim::SGD optimizer(net->parameters(), 0.1);
  torch::optim::SGD plain(net->parameters(), 0.1);
  GradScaler scaler({.device = c10::kCPU});
  for (int step = 0; step < 2; ++step) {
    scaler.scale(net(at::ones({5, 4})).sum()).backward();
    scaler.step(optimizer);
    scaler.step(plain);
    scaler.update();
  }
  scaler.update(flag(8));
  CHECK(copies.count() == 0);

  auto amp = amp::initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  for (int step = 0; step < 2; ++step) {
    amp.scale_loss(model(at::ones({5, 4})).sum(), optimizer).backward();
    amp.scale_loss(model(at::ones({5, 4})).sum(), optimizer).backward();
    amp.step(optimizer);
  }
  amp::detail::PerDevice(flag(1)).on(c10::kCPU);
  amp::detail::combine({flag(1), flag(0)}, c10::kCPU);
  CHECK(copies.count() == 0);
}

TEST_CASE("DeviceCopies: DataParallel makes no unawaited ones") {
  const UnawaitedCopiesToHost copies;
  Net net;
  DataParallel<Net> model(net, {.replicas = 2});
  model(at::ones({6, 4})).sum().backward();
  CHECK(copies.count() == 0);
}

}  // namespace
}  // namespace ddp
