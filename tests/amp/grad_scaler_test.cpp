// What scaler_test.py, the comparison with Python's GradScaler, leaves open: ranks, host reads, containers, archives.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/cuda.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

#include "tests/amp/waits.h"
#include "tests/amp/warnings.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::ElementsAre;
using test::error_of;
using test::here;
using test::HostReads;
using test::run_ranks;
using test::Wire;

const c10::DeviceType kKind = test::is_on_devices() ? c10::kCUDA : c10::kCPU;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor weight_with_gradient(double gradient) {
  at::Tensor weight = here(at::ones({2})).requires_grad_();
  weight.mutable_grad() = here(at::full({2}, gradient));
  return weight;
}

template <typename Scale>
void begin(Scale& scaler) {
  scaler.scale(here(at::ones({})));
}

TEST_CASE("GradScaler: containers are scaled whole") {
  GradScaler scaler({.init_scale = 4, .device = kKind});
  const auto [one, rest] =
      scaler.scale(std::tuple(here(at::ones({})), std::vector{here(at::full({}, 2.0)), here(at::full({}, 3.0))}));
  CHECK(one.item<double>() == 4);
  CHECK(rest[0].item<double>() == 8);
  CHECK(rest[1].item<double>() == 12);
  struct Unknown {};
  CHECK_THROWS_WITH(scaler.scale(Unknown{}), ContainsSubstring("outputs must be a Tensor or an iterable"));
}

TEST_CASE("GradScaler: a parameter that is listed twice is unscaled once") {
  const auto weight = here(at::ones({3})).requires_grad_();
  torch::optim::SGD optimizer({weight, weight}, torch::optim::SGDOptions(1));
  GradScaler scaler({.init_scale = 8, .device = kKind});
  scaler.scale(weight.sum()).backward();
  scaler.unscale_(optimizer);
  CHECK(weight.grad().equal(here(at::ones({3}))));
}

TEST_CASE("GradScaler: disabled it passes everything through") {
  GradScaler scaler({.enabled = false, .device = kKind});
  const at::Tensor loss = here(at::ones({}));
  CHECK(scaler.scale(loss).is_same(loss));
  const at::Tensor weight = weight_with_gradient(1);
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.5));
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.step(optimizer);
  scaler.update();
  CHECK(weight[0].item<double>() == 0);
  CHECK(scaler.get_scale() == 1);
  CHECK_FALSE(scaler.state_dict().has_value());
}

TEST_CASE("GradScaler: without CUDA a scaler for CUDA is disabled") {
  if (torch::cuda::is_available()) SKIP("this machine has CUDA");
  CHECK_FALSE(GradScaler().is_enabled());
}

TEST_CASE("GradScaler: a step with a fused optimizer reads nothing and with another one once") {
  for (const bool overflow : {false, true}) {
    for (const bool unscale_first : {false, true}) {
      const auto reads_of = [&](torch::optim::Optimizer& optimizer) {
        GradScaler scaler({.device = kKind});
        const HostReads reads;
        begin(scaler);
        if (unscale_first) scaler.unscale_(optimizer);
        scaler.step(optimizer);
        scaler.update();
        return reads.count();
      };
      const double gradient = overflow ? kInfinity : 65536;
      const at::Tensor fused_weight = weight_with_gradient(gradient);
      const at::Tensor plain_weight = weight_with_gradient(gradient);
      optim::SGD fused({fused_weight}, optim::SGDOptions(0.5));
      torch::optim::SGD plain({plain_weight}, torch::optim::SGDOptions(0.5));
      CHECK(reads_of(fused) == 0);
      CHECK(reads_of(plain) == 1);
      CHECK(fused_weight[0].item<double>() == (overflow ? 1 : 0.5));
      CHECK(plain_weight[0].item<double>() == (overflow ? 1 : 0.5));
    }
  }
}

// So many of these reduce any scale to 0 where there is no floor.
constexpr int kManyOverflows = 300;

template <typename Optimizer, typename Options>
void check_floor(double min_scale) {
  CAPTURE(min_scale);
  const test::Warnings warnings;
  GradScaler scaler({.growth_interval = 1, .min_scale = min_scale, .device = kKind});
  at::Tensor weight = weight_with_gradient(0);
  Optimizer optimizer({weight}, Options(0.5));
  const auto step = [&](double loss) {
    weight.mutable_grad() = scaler.scale(here(at::full({2}, loss)));
    scaler.step(optimizer);
    scaler.update();
  };
  for (int i = 0; i < kManyOverflows; ++i) step(kInfinity);
  CHECK(weight[0].item<double>() == 1);
  CHECK(scaler.get_scale() == min_scale);
  step(1);
  CHECK(weight[0].item<double>() == 0.5);
  CHECK(scaler.get_scale() == 2 * min_scale);
  for (int i = 0; i < kManyOverflows; ++i) step(kInfinity);
  CHECK(scaler.get_scale() == min_scale);
  CHECK_THAT(warnings.texts(),
             ElementsAre(ContainsSubstring("GradScaler: the scale has been reduced to its floor of ")));
}

TEST_CASE("GradScaler: steps that all overflow reduce the scale to its floor, which gives one warning") {
  for (const double min_scale : {GradScalerOptions().min_scale, 0.25, 0x1p-126}) {
    check_floor<torch::optim::SGD, torch::optim::SGDOptions>(min_scale);
    check_floor<optim::SGD, optim::SGDOptions>(min_scale);
  }
}

TEST_CASE("GradScaler: the floor's warning needs no read and no question for the scale") {
  const test::Warnings warnings;
  GradScaler scaler({.device = kKind});
  const at::Tensor weight = weight_with_gradient(kInfinity);
  optim::SGD optimizer({weight}, optim::SGDOptions(0.5));
  // A device may compute nothing until somebody waits for it, as a loop does that prints its loss now and then.
  for (int i = 0; i < 4; ++i) {
    {
      const HostReads reads;
      for (int step = 0; step < kManyOverflows; ++step) {
        begin(scaler);
        scaler.step(optimizer);
        scaler.update();
      }
      CHECK(reads.count() == 0);
    }
    CHECK(weight[0].item<double>() == 1);
  }
  CHECK(warnings.texts().size() == 1);
}

TEST_CASE("GradScaler: a scale that begins at its floor gives a warning when it cannot be reduced") {
  const test::Warnings warnings;
  GradScaler scaler({.init_scale = 1, .min_scale = 1, .device = kKind});
  at::Tensor weight = weight_with_gradient(1);
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.5));
  const auto step = [&] {
    begin(scaler);
    scaler.step(optimizer);
    scaler.update();
    return scaler.get_scale();
  };
  CHECK(step() == 1);
  CHECK(warnings.texts().empty());
  weight.mutable_grad() = here(at::full({2}, kInfinity));
  for (int i = 0; i < 2 * kManyOverflows; ++i) CHECK(step() == 1);
  CHECK(warnings.texts().size() == 1);
}

TEST_CASE("GradScaler: scales that training could not use are refused or brought into their range") {
  for (const double scale : {0.0, -1.0, 1e-8, 1e39, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CAPTURE(scale);
    CHECK_THROWS_WITH(GradScaler({.init_scale = scale, .device = kKind}),
                      ContainsSubstring("GradScaler: init_scale = ") && ContainsSubstring("expected min_scale = "));
    GradScaler scaler({.device = kKind});
    begin(scaler);
    CHECK_THROWS_WITH(scaler.update(scale), ContainsSubstring("GradScaler: new_scale = "));
    CHECK(scaler.get_scale() == 65536);
  }
  for (const double scale : {0.0, -1.0, 1e-40, 1e39, std::nan("")}) {
    CAPTURE(scale);
    CHECK_THROWS_WITH(GradScaler({.min_scale = scale, .device = kKind}), ContainsSubstring("min_scale = "));
  }
  const test::Warnings warnings;
  GradScaler scaler({.device = kKind});
  begin(scaler);
  scaler.update(here(at::zeros({})));
  CHECK(scaler.get_scale() == 0x1p-24);
  scaler.update(here(at::full({}, kInfinity)));
  CHECK(scaler.get_scale() == std::numeric_limits<float>::max());
}

TEST_CASE("GradScaler: a tensor of NaN leaves the scale as it is") {
  GradScaler scaler({.device = kKind});
  begin(scaler);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    scaler.update(here(at::full({}, std::nan(""), type)));
    CHECK(scaler.get_scale() == 65536);
  }
}

TEST_CASE("GradScaler: a scale that a tensor sets to the floor is not an overflow") {
  const test::Warnings warnings;
  GradScaler scaler({.growth_interval = 1, .min_scale = 4, .device = kKind});
  const at::Tensor weight = weight_with_gradient(1);
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.5));
  const auto step = [&](double gradient) {
    weight.mutable_grad() = here(at::full({2}, gradient));
    begin(scaler);
    scaler.step(optimizer);
    scaler.update();
    return scaler.get_scale();
  };
  begin(scaler);
  scaler.update(here(at::ones({})));
  CHECK(scaler.get_scale() == 4);
  CHECK(scaler.get_scale() == 4);
  CHECK(warnings.texts().empty());
  CHECK(step(1) == 8);
  CHECK(warnings.texts().empty());
  CHECK(step(kInfinity) == 4);
  CHECK_THAT(warnings.texts(), ElementsAre(ContainsSubstring("reduced to its floor of 4.0, since gradients were")));
}

TEST_CASE("GradScaler: the scale does not grow beyond float32") {
  GradScaler scaler({.init_scale = 0x1p127, .growth_interval = 1, .device = kKind});
  torch::optim::SGD optimizer({weight_with_gradient(0)}, torch::optim::SGDOptions(0.5));
  begin(scaler);
  scaler.step(optimizer);
  scaler.update();
  CHECK(scaler.get_scale() == 0x1p127);
}

TEST_CASE("GradScaler: a state whose scale is below the floor is loaded with the floor") {
  // As a Python run leaves it whose steps all overflowed.
  const std::string saved =
      R"({"scale": 0.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0})";
  for (const bool has_begun : {false, true}) {
    CAPTURE(has_begun);
    const test::Warnings warnings;
    GradScaler scaler({.device = kKind});
    if (has_begun) begin(scaler);
    scaler.load(saved);
    CHECK(scaler.get_scale() == 0x1p-24);
    CHECK(scaler.scale(here(at::ones({}))).item<double>() == 0x1p-24);
    CHECK_THAT(warnings.texts(),
               ElementsAre(ContainsSubstring("GradScaler: the scale of the loaded state is 0.0, below the floor of ")));
    CHECK_THROWS_WITH(scaler.load_state_dict(GradScalerState{.scale = 1e39, .growth_interval = 1}),
                      ContainsSubstring("the state's 'scale' is out of range"));
    CHECK(scaler.get_scale() == 0x1p-24);
  }
}

struct ConstantImpl : torch::nn::Module {
  ConstantImpl() {
    register_module("first", first);
    register_module("second", second);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.fill_(0.125);
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
  torch::nn::Linear first{4, 4}, second{4, 1};
};
TORCH_MODULE(Constant);

Constant make_net() {
  Constant net(nullptr);
  {
    static std::mutex mutex;  // modules draw their first weights from the generator that all ranks, threads here, share
    const std::lock_guard lock(mutex);
    net = Constant();
  }
  return test::placed(net);
}

// Steps 0 to 5; in step 3 one rank's loss is infinite.
template <typename Optimizer, typename Options>
void train_with_one_overflow(const GroupHandle& group) {
  Constant net = make_net();
  DistributedDataParallel<Constant> model(net, group);
  Optimizer optimizer(net->parameters(), Options(0.25).momentum(0.5));
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2, .device = kKind, .group = group});
  std::vector<double> scales;
  at::Tensor before;
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    const bool overflows = step == 3 && group.rank() == 1;
    const at::Tensor x = here(at::full({2, 4}, overflows ? kInfinity : 0.5 + group.rank()));
    scaler.scale(model(x).mean()).backward();
    before = net->first->weight.detach().clone();
    scaler.step(optimizer);
    scaler.update();
    scales.push_back(scaler.get_scale());
    {
      RANK_INFO("rank " << group.rank() << ", step " << step);
      RANK_CHECK(torch::equal(net->first->weight, before) == (step == 3));
    }
    for (const at::Tensor& parameter : net->parameters()) {
      const at::Tensor all = all_gather(parameter.detach(), group);
      for (int rank = 1; rank < group.size(); ++rank) {
        RANK_INFO("step " << step);
        RANK_CHECK(torch::equal(all[rank], all[0]));
      }
    }
  }
  RANK_CHECK_THAT(scales, ElementsAre(1024, 2048, 2048, 1024, 1024, 2048));
}

TEST_CASE("GradScaler: an overflow on one rank under DDP makes all skip the same step") {
  for (const Wire wire : test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})) {
    run_ranks(3, train_with_one_overflow<torch::optim::SGD, torch::optim::SGDOptions>, {.wire = wire});
    run_ranks(3, train_with_one_overflow<optim::SGD, optim::SGDOptions>, {.wire = wire});
  }
}

TEST_CASE("GradScaler: ranks with gradients of their own agree when told to") {
  for (const Wire wire : test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})) {
    run_ranks(3,
              [](const GroupHandle& group) {
                GradScaler scaler({.init_scale = 8, .device = kKind, .group = group, .agree_on_found_inf = true});
                // Rank 2 owns no parameter with a gradient.
                at::Tensor weight = weight_with_gradient(8.0 * (group.rank() + 1));
                if (group.rank() == 2) weight.mutable_grad().reset();
                torch::optim::SGD plain({weight}, torch::optim::SGDOptions(0.5));
                begin(scaler);
                scaler.step(plain);
                scaler.update();
                RANK_CHECK(scaler.get_scale() == 8);
                const double stepped = group.rank() == 2 ? 1 : 1 - 0.5 * (group.rank() + 1);
                RANK_CHECK(weight[0].item<double>() == stepped);

                if (group.rank() == 1) weight.mutable_grad() = here(at::full({2}, kInfinity));
                scaler.unscale_(plain);
                scaler.step(plain);
                scaler.update();
                RANK_CHECK(scaler.get_scale() == 4);
                RANK_CHECK(weight[0].item<double>() == stepped);

                optim::SGD fused({weight}, optim::SGDOptions(0.5));
                scaler.step(fused);
                scaler.update();
                RANK_CHECK(scaler.get_scale() == 2);
                RANK_CHECK(weight[0].item<double>() == stepped);
              },
              {.wire = wire});
  }
}

TEST_CASE("GradScaler: errors begin with the rank") {
  const GroupHandle group = test::unconnected_rank(1, 3);
  GradScaler scaler({.device = kKind, .group = group});
  torch::optim::SGD optimizer({weight_with_gradient(1)}, torch::optim::SGDOptions(0.5));
  CHECK_THROWS_WITH(scaler.unscale_(optimizer),
                    StartsWith("rank 1 of 3: Attempted unscale_ but _scale is None.  This may indicate"));
  begin(scaler);
  scaler.unscale_(optimizer);
  CHECK(error_of([&] { scaler.unscale_(optimizer); }) ==
        "rank 1 of 3: unscale_() has already been called on this optimizer since the last update().");
  scaler.step(optimizer);
  CHECK(error_of([&] { scaler.step(optimizer); }) ==
        "rank 1 of 3: step() has already been called since the last update().");
  CHECK(error_of([&] { scaler.unscale_(optimizer); }) == "rank 1 of 3: unscale_() is being called after step().");
  CHECK_THROWS_WITH(GradScaler({.device = kKind, .agree_on_found_inf = true}), ContainsSubstring("needs a group"));
}

std::string archived(const GradScaler& scaler) {
  torch::serialize::OutputArchive archive;
  scaler.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load(GradScaler& scaler, const std::string& bytes) {
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  scaler.load(archive);
}

TEST_CASE("GradScaler: archives bring back the whole state before and after the first loss") {
  GradScaler scaler({.init_scale = 8, .growth_factor = 3, .growth_interval = 2, .device = kKind});
  torch::optim::SGD optimizer({weight_with_gradient(1)}, torch::optim::SGDOptions(0.5));
  const auto step = [&](GradScaler& one) {
    begin(one);
    one.step(optimizer);
    one.update();
    return one.get_scale();
  };
  CHECK(step(scaler) == 8);
  const std::string bytes = archived(scaler);
  GradScaler fresh({.device = kKind});
  GradScaler used({.device = kKind});
  step(used);
  for (GradScaler* other : {&fresh, &used}) {
    load(*other, bytes);
    CHECK(other->get_growth_tracker() == 1);
    CHECK(step(*other) == 24);
  }
}

TEST_CASE("GradScaler: archives that do not fit change nothing") {
  GradScaler scaler({.init_scale = 8, .device = kKind});
  torch::serialize::OutputArchive empty;
  empty.write("other", c10::IValue(1));
  std::ostringstream stream;
  empty.save_to(stream);
  CHECK_THROWS_WITH(load(scaler, stream.str()), ContainsSubstring("was not saved by a GradScaler"));
  GradScaler disabled({.enabled = false, .device = kKind});
  CHECK_THROWS_WITH(load(scaler, archived(disabled)), ContainsSubstring("saved from a disabled instance"));
  load(disabled, archived(scaler));
  CHECK(scaler.get_scale() == 8);

  torch::optim::SGD optimizer({weight_with_gradient(1)}, torch::optim::SGDOptions(0.5));
  begin(scaler);
  scaler.unscale_(optimizer);
  CHECK_THROWS_WITH(archived(scaler), ContainsSubstring("at the beginning of an iteration"));
}

}  // namespace
}  // namespace ddp
