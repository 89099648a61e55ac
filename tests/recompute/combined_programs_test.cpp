// Training programs drawn at random that combine what programs do with gradients, regions and all options of
// DistributedDataParallel, compared bit by bit with a judge that has neither wrapper nor regions: it averages p.grad()
// over the ranks by hand after each backward.
#include <ATen/autocast_mode.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/amp/amp.h"
#include "ddprun/amp/autocast.h"
#include "ddprun/amp/grad_scaler.h"
#include "ddprun/comm/collectives.h"
#include "ddprun/ddp/comm_hooks.h"
#include "ddprun/ddp/distributed_data_parallel.h"
#include "ddprun/optim/clip_grad.h"
#include "ddprun/optim/optimizers.h"
#include "ddprun/optim/zero_redundancy_optimizer.h"
#include "ddprun/recompute/recompute.h"
#include "tests/ddp/support.h"
#include "tests/recompute/regions.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp::regions {
namespace {

using test::numbers;

// A layer that is used twice, one that may stay unused, one that may be frozen.
struct PartsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = run(
        0, [this](const at::Tensor& y) { return stem(y).relu_(); }, x);
    h = run(
        1, [this](const at::Tensor& y) { return block(y.sin()).tanh() + y; }, h);
    h = run(
        2,
        [this](const at::Tensor& y) {
          const at::Tensor z = has_regions && uses_keep
                                   ? keep([this](const at::Tensor& w) { return block(w); }, y.cos())
                                   : block(y.cos());
          return uses_side ? z.exp() * 0.1 + side(z.sin()) : z.sigmoid();
        },
        h);
    return run(
        3,
        [this](const at::Tensor& y) {
          return run(
                     4, [this](const at::Tensor& z) { return head(z); }, y) *
                 scale;
        },
        h);
  }
  template <typename Step>
  at::Tensor run(unsigned number, Step step, const at::Tensor& x) {
    if (!has_regions || (regions >> number) % 2 == 0) return step(x);
    RecomputeOptions options{.early_stop = early_stop};
    if (saves_products && number > 0) options.must_save = {"aten::addmm", "aten::tanh"};
    return checkpoint(options, step, x);
  }
  torch::nn::Linear stem = register_module("stem", torch::nn::Linear(6, 8));
  torch::nn::Linear block = register_module("block", torch::nn::Linear(8, 8));
  torch::nn::Linear side = register_module("side", torch::nn::Linear(8, 8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 3));
  at::Tensor scale = register_parameter("scale", at::zeros({3}));
  bool has_regions = false;
  unsigned regions = 0;  // a bit for each of five
  bool uses_keep = false, early_stop = true, saves_products = false;
  bool uses_side = true;
};
TORCH_MODULE(Parts);

using WrappedParts = DistributedDataParallel<Parts>;
using Seen = std::vector<at::Tensor>;

// What is drawn once for a program.
struct Setting {
  unsigned seed = 0;
  bool finds_unused = false, is_static = false, views = true, is_zero_1 = false, autocasts = false, joins = false;
  std::string hook{};
  std::optional<bool> own{}, batched{};
  bool lazy = false;
  int64_t cap = 1 << 20;
  unsigned regions = 0;
  bool uses_keep = false, early_stop = true, saves_products = false;
};

Setting drawn(unsigned seed) {
  std::mt19937 random(seed);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  static const std::vector<std::string> kHooks{"",    "",         "", "all_reduce", "fp16", "bf16", "fp16_wrapped",
                                               "own", "power_sgd"};
  Setting s{.seed = seed};
  s.finds_unused = one_in(4);
  s.is_static = !s.finds_unused && one_in(4);
  s.views = !one_in(4);
  s.is_zero_1 = one_in(4);
  s.autocasts = one_in(4);
  s.hook = kHooks[random() % kHooks.size()];
  s.cap = one_in(2) ? 100 : 1 << 20;
  s.lazy = TORCH_VERSION_MINOR >= 15 && one_in(6);
  if (TORCH_VERSION_MINOR >= 12 && one_in(4)) s.batched = one_in(2);
  if (one_in(4)) s.own = false;
  s.joins = !s.is_zero_1 && !s.is_static && one_in(5);
  s.regions = random() % 32;
  s.uses_keep = one_in(3);
  s.early_stop = !one_in(4);
  s.saves_products = one_in(3);
  return s;
}

// Whose reduction is not that of each element by itself.
bool is_beyond_the_judge(const Setting& s) {
  return s.hook == "power_sgd" || s.joins;
}

// Sums in double.
CommHook own_hook(const GroupHandle& group) {
  return named_hook("of the test", [group](GradientBucket& bucket) {
    const at::ScalarType type = bucket.buffer().scalar_type();
    return then(all_reduce_future(bucket.buffer().to(at::kDouble).mul_(0.75), group),
                [type](const at::Tensor& sum) { return sum.to(type); });
  });
}

CommHook made_hook(const std::string& name, const GroupHandle& group) {
  if (name == "all_reduce") return hooks::all_reduce(group);
  if (name == "fp16") return hooks::fp16_compress(group);
  if (name == "bf16") return hooks::bf16_compress(group);
  if (name == "fp16_wrapped") return hooks::fp16_compress_wrapper(hooks::all_reduce(group));
  if (name == "own") return own_hook(group);
  if (name == "power_sgd") {
    return hooks::power_sgd(make_power_sgd_state(group, {.matrix_approximation_rank = 2, .start_iteration = 5}));
  }
  return {};
}

// What the hook of that name makes of one gradient.
at::Tensor mean_by(const std::string& hook, const at::Tensor& gradient, const GroupHandle& group) {
  if (hook == "own") {
    at::Tensor sum = gradient.to(at::kDouble).mul_(0.75);
    all_reduce(sum, group);
    return sum.to(gradient.scalar_type());
  }
  const bool is_half = hook.starts_with("fp16");
  at::Tensor sum = is_half ? gradient.to(at::kHalf) : hook == "bf16" ? gradient.to(at::kBFloat16) : gradient.clone();
  sum.div_(group.size());
  all_reduce(sum, group);
  return sum.to(gradient.scalar_type());
}

// A hook that autograd calls with the parameter when its gradient is accumulated, before anybody else sees that.
class Accumulated final : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& parameter) override {
    const at::NoGradGuard no_grad;
    if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad() * 0.5 + 0.125;
  }
};

class Program {
 public:
  enum class Side { kJudge, kPlainWrapper, kActual };

  Program(const Setting& setting, Side side, const GroupHandle& group)
      : setting_(setting),
        group_(group),
        random_(setting.seed),
        scaler_({.init_scale = 256, .growth_interval = 2, .device = group.device().type(), .group = group}) {
    net_->has_regions = side == Side::kActual;
    net_->regions = setting.regions;
    net_->uses_keep = setting.uses_keep;
    net_->early_stop = setting.early_stop;
    net_->saves_products = setting.saves_products;
    if (side != Side::kJudge) model_.emplace(net_, group, options(side));
    if (setting.is_zero_1) {
      optimizer_ =
          std::make_unique<ZeroRedundancyOptimizer<optim::AdamW>>(parameters_, optim::AdamWOptions(0.01), group);
    } else {
      optimizer_ = std::make_unique<optim::SGD>(parameters_, optim::SGDOptions(0.05).momentum(0.9));
    }
  }

  Seen run(int actions) {
    for (int i = 0; i < actions; ++i) {
      act();
      look();
    }
    return std::move(seen_);
  }
  const std::string& story() const { return story_; }

 private:
  DdpOptions options(Side side) const {
    DdpOptions options{.bucket_cap_bytes = setting_.cap,
                       .find_unused_parameters = setting_.finds_unused,
                       .static_graph = setting_.is_static};
    options.comm_hook = made_hook(setting_.hook, group_);
    if (side == Side::kPlainWrapper) {
      options.gradient_as_bucket_view = false;
      options.own_engine = false;
      return options;
    }
    options.gradient_as_bucket_view = setting_.views;
    options.own_engine = setting_.own;
    options.batched_grad_copy = setting_.batched;
    options.lazy_bucket_allocation = setting_.lazy;
    return options;
  }

  bool chance(unsigned of) { return random_() % of == 0; }
  at::Tensor some() { return parameters_[random_() % parameters_.size()]; }
  void tell(const std::string& what) { story_ += what + "; "; }

  void act() {
    const std::vector<std::pair<const char*, std::function<void()>>> all{{"step", [&] { whole_step(); }},
                                                                         {"step", [&] { whole_step(); }},
                                                                         {"step", [&] { whole_step(); }},
                                                                         {"scaled step", [&] { scaled_step(); }},
                                                                         {"scaled step", [&] { scaled_step(); }},
                                                                         {"backward", [&] { backward(true); }},
                                                                         {"backward", [&] { backward(true); }},
                                                                         {"local", [&] { local(); }},
                                                                         {"none", [&] { reset(true); }},
                                                                         {"zero", [&] { reset(false); }},
                                                                         {"keep", [&] { keep_gradients(); }},
                                                                         {"put back", [&] { put_back(); }},
                                                                         {"drop", [&] { kept_.clear(); }},
                                                                         {"clip", [&] { clip(); }},
                                                                         {"two losses", [&] { two_losses(); }},
                                                                         {"twice", [&] { twice(); }},
                                                                         {"penalty", [&] { penalty(); }},
                                                                         {"freeze", [&] { freeze(); }},
                                                                         {"hook", [&] { hook(); }},
                                                                         {"accumulated", [&] { accumulated(); }},
                                                                         {"memory", [&] { move_data(); }},
                                                                         {"join", [&] { join(); }}};
    const auto& [name, action] = all[random_() % all.size()];
    tell(name);
    action();
  }

  void move_data() {
    const at::Tensor parameter = some();
    parameter.set_data(parameter.detach().clone());
  }

  // A region runs again as its module is then: forwards of one backward have the same way.
  at::Tensor loss(bool draws_way = true) {
    if (setting_.finds_unused && draws_way)
      net_->uses_side = (random_() + static_cast<unsigned>(group_.rank())) % 3 != 0;
    pending_use_ = pending_use_ || net_->uses_side;
    std::optional<Autocast> autocast;
    if (setting_.autocasts) autocast.emplace(group_.device(), AutocastOptions{.dtype = at::kBFloat16});
    const at::Tensor x = numbers({4, 6}, 100 * (group_.rank() + 1) + static_cast<int64_t>(random_() % 50));
    const at::Tensor y = model_ ? (*model_)(x) : net_(x);
    return y.to(at::kFloat).pow(2).mean();
  }

  void run_backward(const at::Tensor& loss, bool reduces) {
    loss.backward();
    used_side_ = std::exchange(pending_use_, false) || used_side_;
    if (!reduces || model_) return;
    reduce_by_hand();
  }

  void reduce_by_hand() {
    const at::NoGradGuard no_grad;
    const at::Tensor used = at::full({1}, used_side_ || !setting_.finds_unused ? 1.F : 0.F);
    all_reduce(used, group_);
    used_side_ = false;
    for (const at::Tensor& parameter : parameters_) {
      if (!parameter.requires_grad()) continue;
      const bool is_side = parameter.is_same(net_->side->weight) || parameter.is_same(net_->side->bias);
      if (is_side && used.item<float>() == 0) continue;
      at::Tensor& gradient = parameter.mutable_grad();
      const at::Tensor own = gradient.defined() ? gradient : at::zeros_like(parameter);
      const at::Tensor mean = mean_by(setting_.hook, own, group_);
      if (gradient.defined()) {
        gradient.copy_(mean);
      } else {
        gradient = mean;
      }
    }
  }

  void backward(bool reduces) {
    const at::Tensor value = loss();
    if (chance(6)) keep_gradients();
    if (chance(6)) reset(true);
    run_backward(value, reduces);
    is_equal_on_ranks_ = reduces;
  }

  void local() {
    std::optional<NoSyncGuard> guard;
    if (model_) guard.emplace((*model_)->no_sync());
    backward(false);
  }

  void reset(bool to_none) {
    tell(to_none ? "(none)" : "(zero)");
    optimizer_->zero_grad(to_none);
    if (to_none) used_side_ = false;
    is_equal_on_ranks_ = true;
  }

  void step() {
    if (setting_.is_zero_1 && !is_equal_on_ranks_) return;
    optimizer_->step();
  }

  void whole_step() {
    reset(chance(2));
    if (chance(4)) local();
    backward(true);
    if (chance(3)) clip();
    step();
  }

  void scaled_step() {
    reset(chance(2));
    const at::Tensor value = loss() * (chance(5) && setting_.hook != "power_sgd" ? 1e38 : 1.0);
    run_backward(scaler_.scale(value), true);
    is_equal_on_ranks_ = true;
    if (chance(2)) keep_gradients();
    if (chance(2)) {
      scaler_.unscale_(*optimizer_);
      clip();
    }
    scaler_.step(*optimizer_);
    scaler_.update();
    seen_.push_back(at::full({1}, scaler_.get_scale()));
    // Infinite gradients would stay.
    reset(true);
  }

  void two_losses() {
    const at::Tensor first = loss();
    const at::Tensor second = loss(/*draws_way=*/false);
    if (setting_.finds_unused || chance(2)) return sum_of(first, second);
    run_backward(first, true);
    run_backward(second, true);
    is_equal_on_ranks_ = true;
  }
  void sum_of(const at::Tensor& first, const at::Tensor& second) {
    run_backward(first + second, true);
    is_equal_on_ranks_ = true;
  }

  void twice() {
    if (setting_.finds_unused) return;
    const at::Tensor value = loss();
    value.backward({}, /*retain_graph=*/true);
    if (!model_) reduce_by_hand();
    run_backward(value, true);
    is_equal_on_ranks_ = true;
  }

  void penalty() {
    if (setting_.autocasts || setting_.finds_unused) return;
    std::vector<at::Tensor> trained;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.requires_grad()) trained.push_back(parameter);
    }
    at::Tensor sum = loss();
    const auto gradients = torch::autograd::grad({sum}, trained, {}, true, /*create_graph=*/true);
    for (const at::Tensor& gradient : gradients) sum = sum + gradient.square().sum() * 0.01;
    run_backward(sum, true);
    is_equal_on_ranks_ = true;
  }

  void freeze() {
    if (setting_.is_static) return;
    for (const at::Tensor& parameter : net_->head->parameters()) {
      parameter.set_requires_grad(!parameter.requires_grad());
    }
  }

  void hook() {
    const at::Tensor parameter = some();
    if (!parameter.requires_grad()) return;
    switch (random_() % 3) {
      case 0:
        parameter.register_hook([](const at::Tensor& gradient) { return gradient * 0.75; });
        return;
      case 1:
        parameter.register_hook([](const at::Tensor& gradient) { return at::full_like(gradient, 0.25); });
        return;
      default:
        parameter.register_hook(
            [](const at::Tensor& gradient) { return gradient.new_full({}, 0.5).expand_as(gradient); });
    }
  }

  void accumulated() {
    const at::Tensor parameter = some();
    if (!parameter.requires_grad()) return;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, chance(2) ? std::make_unique<Accumulated>() : nullptr);
  }

  void clip() {
    if (chance(3)) {
      optim::clip_grad_value_(parameters_, 0.02);
    } else {
      seen_.push_back(optim::clip_grad_norm_(parameters_, 0.1).clone());
    }
  }

  // The tensor, a view of it, or one that shares its memory.
  void keep_gradients() {
    tell("(keep)");
    for (const at::Tensor& parameter : parameters_) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined() || chance(2)) continue;
      const auto how = random_() % 3;
      kept_.push_back(how == 0 ? gradient : how == 1 ? gradient.flatten() : gradient.detach());
    }
  }
  void put_back() {
    const at::Tensor parameter = some();
    for (const at::Tensor& each : kept_) {
      if (each.sizes() == parameter.sizes()) parameter.mutable_grad() = each;
    }
    is_equal_on_ranks_ = false;
  }

  void join() {
    if (!setting_.joins) return;
    const auto body = [this] {
      const auto state = random_;  // the ranks continue with the same numbers
      for (int i = 0; i < 2 + 2 * group_.rank(); ++i) {
        optimizer_->zero_grad();
        const at::Tensor value = loss();
        value.backward();
        if (group_.rank() == 0) keep_gradients();
        optimizer_->step();
      }
      random_ = state;
      reset(true);
    };
    (*model_)->join(body);
  }

  void look() {
    for (const at::Tensor& parameter : parameters_) {
      seen_.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
      seen_.push_back(parameter.detach().clone());
    }
    for (const at::Tensor& each : kept_) seen_.push_back(each.clone());
  }

  const Setting setting_;
  const GroupHandle group_;
  std::mt19937 random_;  // all ranks draw the same
  Parts net_ = test::make<Parts>(5);
  const std::vector<at::Tensor> parameters_ = net_->parameters();
  std::optional<WrappedParts> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  GradScaler scaler_;
  std::vector<at::Tensor> kept_;
  bool pending_use_ = false;  // of the side layer by forwards whose backward has not run
  bool used_side_ = false;    // by backwards since the last reduction
  bool is_equal_on_ranks_ = true;
  Seen seen_;
  std::string story_;
};

std::string described(const Setting& s) {
  std::string text = "program " + std::to_string(s.seed);
  const auto add = [&](bool value, const std::string& name) {
    if (value) text += ", " + name;
  };
  add(s.finds_unused, "find unused");
  add(s.is_static, "static");
  add(!s.views, "no views");
  add(s.is_zero_1, "ZeRO-1");
  add(s.autocasts, "autocast");
  add(s.joins, "join");
  add(s.lazy, "lazy");
  add(s.batched.value_or(false), "batched");
  add(s.own.has_value(), "c10d's engine");
  add(!s.hook.empty(), "hook " + s.hook);
  return text + ", cap " + std::to_string(s.cap) + ", regions " + std::to_string(s.regions);
}

unsigned programs(unsigned usual) {
  const char* told = std::getenv("DDPRUN_TEST_PROGRAMS");
  return told != nullptr ? static_cast<unsigned>(std::stoul(told)) : usual;
}

unsigned first_program() {
  const char* told = std::getenv("DDPRUN_TEST_FIRST_PROGRAM");
  return told != nullptr ? static_cast<unsigned>(std::stoul(told)) : 1;
}

// Where the two are the first to differ, and whether they do.
bool same(const Seen& actual, const Seen& expected, std::string& where) {
  if (actual.size() != expected.size()) {
    where = std::to_string(actual.size()) + " values instead of " + std::to_string(expected.size());
    return false;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool both = actual[i].defined() && expected[i].defined();
    if (both ? at::allclose(actual[i], expected[i], 0, 0, /*equal_nan=*/true)
             : actual[i].defined() == expected[i].defined()) {
      continue;
    }
    where = "value " + std::to_string(i) + " of " + std::to_string(expected.size());
    if (both) where += ", largest difference " + std::to_string((actual[i] - expected[i]).abs().max().item<double>());
    return false;
  }
  return true;
}

TEST_CASE("Combined programs: gradients are those of a judge without wrapper and without regions") {
  const unsigned first = first_program();
  for (const test::Wire wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [&](const GroupHandle& group) {
                      // Ranks that are threads have one cache of casts, which each of them empties.
                      at::autocast::set_autocast_cache_enabled(false);
                      for (unsigned seed = first; seed < first + programs(25); ++seed) {
                        const Setting setting = drawn(seed);
                        const auto judge =
                            is_beyond_the_judge(setting) ? Program::Side::kPlainWrapper : Program::Side::kJudge;
                        RANK_INFO(described(setting));
                        Program expected(setting, judge, group);
                        const Seen before = expected.run(16);
                        Program actual(setting, Program::Side::kActual, group);
                        const Seen after = actual.run(16);
                        std::string where;
                        const bool is_same = same(after, before, where);
                        RANK_INFO(where << ": " << actual.story());
                        RANK_CHECK(is_same);
                      }
                    },
                    {.wire = wire});
  }
}

}  // namespace
}  // namespace ddp::regions
