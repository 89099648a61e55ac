// Training under amp in one process: masters, loss scales, overflows, accumulation.
#include <ATen/ops/full.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/optim/optimizers.h>

#include "tests/amp/waits.h"
#include "tests/amp/warnings.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/ranks.h"

namespace ddp::amp {
namespace {

using at::kHalf;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using test::ElementsAre;
using test::error_of;
using test::here;
using test::HostReads;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One weight, of which the output is a multiple.
struct ScaleImpl : torch::nn::Module {
  explicit ScaleImpl(double value = 1) : weight(register_parameter("weight", at::full({1}, value))) {}
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};
TORCH_MODULE(Scale);

at::Tensor number(double value) {
  return here(at::full({1}, value));
}
// With the first scale of 65536, a gradient of 1 at the output is more than half precision holds.
at::Tensor loss_of(const at::Tensor& y) {
  return y.sum() / 4;
}
double value_of(const at::Tensor& tensor) {
  return tensor.item<double>();
}

TEST_CASE("Masters: keep what 16 bits cannot hold") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4e-4);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
    amp.step(optimizer);
  }
  UNSCOPED_INFO("each step is lost in half precision");
  CHECK_THAT(value_of(master_params(optimizer)[0]), WithinAbs(1 - 8e-4, 1e-6));
  CHECK(value_of(net->weight) == value_of(here(at::full({1}, 1 - 8e-4)).to(kHalf)));
  CHECK(net->weight.scalar_type() == kHalf);
}

TEST_CASE("Masters: take over the state that the optimizer has") {
  const auto train = [](const char* level) {
    Scale net = test::placed(Scale());
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.1));
    net(number(1)).sum().backward();
    optimizer.step();
    Amp amp = initialize(net, optimizer, {.opt_level = level});
    auto model = amp.model(net);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
      amp.step(optimizer);
    }
    CHECK(optimizer.state().size() == 1U);
    return value_of(master_params(optimizer)[0]);
  };
  INFO("the first step rounded to half");
  CHECK_THAT(train("O2"), WithinAbs(train("O0"), 1e-3));
}

TEST_CASE("Masters: gradients are clipped there") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2", .loss_scale = 8.0});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(4))), optimizer).backward();
  UNSCOPED_INFO("the model's gradient stays scaled");
  CHECK(value_of(net->weight.grad()) == 8);
  CHECK(torch::nn::utils::clip_grad_norm_(master_params(optimizer), 0.125) == 1);
  amp.step(optimizer);
  CHECK_THAT(value_of(net->weight), WithinAbs(0.5, 1e-3));
  CHECK_FALSE(master_params(optimizer)[0].grad().defined());
}

TEST_CASE("Masters: what is written to them reaches the model at its next forward") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
  amp.step(optimizer);
  const at::NoGradGuard no_grad;
  master_params(optimizer)[0].fill_(2);
  CHECK(value_of(model(number(3))) == 6);
}

TEST_CASE("LossScale: overflows skip the step and halve the scale down to the floor") {
  for (const char* level : {"O1", "O2"}) {
    Scale net = test::placed(Scale());
    torch::optim::SGD optimizer(net->parameters(), 4.0);
    Amp amp = initialize(net, optimizer, {.opt_level = level, .min_loss_scale = 20000.0});
    auto model = amp.model(net);
    std::vector<double> scales;
    for (const float x : {0.1F, kInfinity, 0.1F, kInfinity, kInfinity}) {
      optimizer.zero_grad();
      const double before = value_of(net->weight);
      amp.scale_loss(loss_of(model(number(x))), optimizer).backward();
      amp.step(optimizer);
      INFO(level);
      CHECK((value_of(net->weight) == before) == (x == kInfinity));
      scales.push_back(amp.loss_scale());
    }
    UNSCOPED_INFO(level);
    CHECK_THAT(scales, ElementsAre(65536, 32768, 32768, 20000, 20000));
    CHECK(amp.state_dict().at("loss_scaler0").unskipped == 0);
  }
}

TEST_CASE("LossScale: steps that all overflow do not reduce it to 0, which gives one warning") {
  for (const char* level : {"O1", "O2"}) {
    CAPTURE(level);
    const test::Warnings warnings;
    Scale net = test::placed(Scale());
    optim::SGD optimizer(net->parameters(), 4.0);
    Amp amp = initialize(net, optimizer, {.opt_level = level});
    auto model = amp.model(net);
    const auto step = [&](float x) {
      optimizer.zero_grad();
      amp.scale_loss(loss_of(model(number(x))), optimizer).backward();
      amp.step(optimizer);
    };
    constexpr int kManyOverflows = 200;
    for (int i = 0; i < kManyOverflows; ++i) step(kInfinity);
    CHECK(amp.loss_scale() == 0x1p-24);
    CHECK(value_of(net->weight) == 1);
    step(0.1F);
    CHECK(std::isfinite(value_of(net->weight)));
    CHECK_THAT(warnings.texts(), ElementsAre(ContainsSubstring("amp: a loss scale has been reduced to its floor of ")));
    amp.load_state_dict({{"loss_scaler0", {.loss_scale = 1e-300}}});
    CHECK(amp.loss_scale() == 0x1p-24);
    CHECK_THROWS_WITH(amp.load_state_dict({{"loss_scaler0", {.loss_scale = 1e300}}}),
                      ContainsSubstring("loss_scaler0 is out of range"));
  }
}

TEST_CASE("LossScale: an overflow is not forgotten when the optimizer refuses the step") {
  for (const char* level : {"O1", "O2"}) {
    Scale net = test::placed(Scale());
    optim::SGD optimizer(net->parameters(), 4.0);
    Amp amp = initialize(net, optimizer, {.opt_level = level});
    auto model = amp.model(net);
    amp.scale_loss(loss_of(model(number(kInfinity))), optimizer).backward();
    optimizer.param_groups()[0].options().set_lr(std::numeric_limits<double>::infinity());
    CHECK_THROWS_AS(amp.step(optimizer), std::invalid_argument);
    optimizer.param_groups()[0].options().set_lr(4);
    amp.step(optimizer);
    INFO(level);
    CHECK(value_of(net->weight) == 1);
  }
}

TEST_CASE("LossScale: doubles after 2000 good steps up to the ceiling") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O1", .max_loss_scale = 3e5});
  auto model = amp.model(net);
  const auto step = [&] {
    optimizer.zero_grad();
    amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
    amp.step(optimizer);
    return amp.loss_scale();
  };
  for (int i = 0; i < 1999; ++i) step();
  CHECK(amp.loss_scale() == 65536);
  CHECK(amp.state_dict().at("loss_scaler0").unskipped == 1999);
  CHECK(step() == 131072);
  amp.load_state_dict({{"loss_scaler0", {.loss_scale = 262144, .unskipped = 1999}}});
  CHECK(step() == 3e5);
  CHECK(amp.state_dict().at("loss_scaler0").unskipped == 0);
}

TEST_CASE("LossScale: a static one neither skips nor changes") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2", .loss_scale = "128.0"});
  auto model = amp.model(net);
  {
    const ScaledLoss scaled = amp.scale_loss(loss_of(model(number(2))), optimizer);
    CHECK(value_of(scaled) == 64);
    scaled.backward();
  }
  CHECK(value_of(master_params(optimizer)[0].grad()) == 0.5);
  amp.step(optimizer);
  amp.scale_loss(loss_of(model(number(kInfinity))), optimizer).backward();
  amp.step(optimizer);
  CHECK_FALSE(std::isfinite(value_of(net->weight)));
  CHECK(amp.loss_scale() == 128);
}

TEST_CASE("LossScale: several losses have their own and an overflow of one skips its optimizers only") {
  Scale first = test::placed(Scale());
  Scale second = test::placed(Scale());
  torch::optim::SGD one(first->parameters(), 4.0);
  optim::SGD two(second->parameters(), optim::SGDOptions(4.0));
  Amp amp = initialize({first, second}, {one, two}, {.opt_level = "O2", .num_losses = 3});
  auto model_one = amp.model(first);
  auto model_two = amp.model(second);
  amp.scale_loss(loss_of(model_one(number(0.25))), one, {.loss_id = 0}).backward();
  amp.scale_loss(loss_of(model_two(number(0.25))), two, {.loss_id = 1}).backward();
  amp.scale_loss(loss_of(model_two(number(kInfinity))), two, {.loss_id = 2}).backward();
  amp.scale_loss(loss_of(model_one(number(0.25)) + model_two(number(0.25))), {one, two}, {.loss_id = 0}).backward();
  amp.step(one);
  amp.step(two);
  CHECK(value_of(first->weight) == 0.5);
  UNSCOPED_INFO("one of its losses had overflowed");
  CHECK(value_of(second->weight) == 1);
  CHECK(amp.loss_scale(0) == 65536);
  CHECK(amp.loss_scale(1) == 65536);
  CHECK(amp.loss_scale(2) == 32768);
  amp.scale_loss(loss_of(model_two(number(0.25))), two, {.loss_id = 1}).backward();
  amp.step(two);
  INFO("one step is skipped, not two");
  CHECK(value_of(second->weight) == 0.75);
}

TEST_CASE("LossScale: a delayed check counts at the next one") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(kInfinity))), optimizer, {.delay_overflow_check = true}).backward();
  CHECK(amp.loss_scale() == 65536);
  amp.scale_loss(loss_of(model(number(0.25))), optimizer).backward();
  CHECK(amp.loss_scale() == 32768);
  amp.step(optimizer);
  CHECK(value_of(net->weight) == 1);
}

TEST_CASE("Accumulation: gradients add up in the masters or scaled in the model") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    for (const bool delay : {false, true}) {
      Scale net = test::placed(Scale());
      torch::optim::SGD optimizer(net->parameters(), 4.0);
      Amp amp = initialize(net, optimizer, {.opt_level = level, .loss_scale = 1024.0});
      auto model = amp.model(net);
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        for (int pass = 0; pass < 3; ++pass) {
          const bool last = pass == 2;
          amp.scale_loss(loss_of(model(number(0.125))), optimizer, {.delay_unscale = delay && !last}).backward();
          if (delay && !last) {
            CHECK_THROWS_WITH(amp.step(optimizer), ContainsSubstring("are still scaled"));
          }
        }
        amp.step(optimizer);
      }
      INFO(level << ", delayed: " << delay);
      CHECK(value_of(net->weight) == 0.25);
    }
  }
}

TEST_CASE("Accumulation: zero_grad forgets scaled gradients and overflows too") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(kInfinity))), optimizer).backward();
  amp.scale_loss(loss_of(model(number(1))), optimizer, {.delay_unscale = true}).backward();
  amp.zero_grad(optimizer);
  amp.step(optimizer);
  amp.scale_loss(loss_of(model(number(0.25))), optimizer).backward();
  amp.step(optimizer);
  CHECK(value_of(net->weight) == 0.75);
}

TEST_CASE("ScaledLoss: when backward throws the earlier gradients come back") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O1"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(0.25))), optimizer).backward();
  const auto fail = [&] {
    const ScaledLoss scaled = amp.scale_loss(loss_of(model(number(1))), optimizer);
    throw std::runtime_error("in the loop");
  };
  CHECK(error_of(fail) == "in the loop");
  CHECK(value_of(net->weight.grad()) == 0.0625);
  amp.step(optimizer);
  CHECK(value_of(net->weight) == 0.75);
}

TEST_CASE("Training: with fused optimizers the host reads nothing") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    for (const bool overflow : {false, true}) {
      const auto reads_of = [&](auto make_optimizer) {
        Scale net = test::placed(Scale());
        auto optimizer = make_optimizer(net->parameters());
        Amp amp = initialize(net, optimizer, {.opt_level = level, .loss_scale = "dynamic"});
        auto model = amp.model(net);
        const HostReads reads;
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          amp.scale_loss(loss_of(model(number(overflow ? kInfinity : 0.25))), optimizer).backward();
          amp.step(optimizer);
        }
        const int count = reads.count();
        INFO(level);
        CHECK(value_of(net->weight) == (overflow ? 1 : 0.25));
        return count;
      };
      INFO(level);
      CHECK(reads_of([](auto parameters) { return optim::SGD(parameters, optim::SGDOptions(4.0)); }) == 0);
      CHECK(reads_of([](auto parameters) { return torch::optim::SGD(parameters, 4.0); }) == 3);
    }
  }
}

}  // namespace
}  // namespace ddp::amp
