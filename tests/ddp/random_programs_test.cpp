// Training programs made at random leave the same bits, and fail or not alike, whichever engine reduces their
// gradients.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/gradient_hook.h>

#include "tests/ddp/again.h"
#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using test::make;
using test::numbers;
using test::run_ranks;
using test::Wire;

// A weight that is used twice, a layer that may run its backward within the backward, one of doubles, and one that may
// be left out.
struct SeveralImpl : torch::nn::Module {
  struct Way {
    bool again = false;
    bool leaves_out = false;
  };
  torch::Tensor forward(const torch::Tensor& x, Way way) {
    torch::Tensor y = torch::tanh(first(x));
    y = way.again ? test::Again::apply(y, inner.get()) : inner(y);
    y = torch::matmul(torch::sigmoid(y), shared) + torch::matmul(y.square(), shared);
    y = torch::matmul(y.to(torch::kDouble), doubles).sin().to(torch::kFloat);
    return way.leaves_out ? y : last(y) * scale;
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 7));
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(7, 7));
  torch::Tensor shared = register_parameter("shared", torch::zeros({7, 6}));
  torch::Tensor doubles = register_parameter("doubles", torch::zeros({6, 4}, torch::kDouble));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(4, 3));
  torch::Tensor scale = register_parameter("scale", torch::zeros({}));
};
TORCH_MODULE(Several);

// What is there after one action, in bytes; "threw" where it ended the program.
using Trace = std::vector<std::string>;

std::string bytes_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const torch::Tensor dense = tensor.detach().contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

class Program {
 public:
  Program(unsigned seed, const GroupHandle& group, bool own)
      : random_(seed),
        group_(group),
        hooks_(hooks_into_gradients()),
        model_(net_, group, DdpOptions{.bucket_cap_bytes = pick({100, 300, 1 << 20}), .own_engine = own}),
        optimizer_(net_->parameters(), torch::optim::SGDOptions(1e-2).momentum(0.9)) {}

  Trace run(int actions) {
    Trace trace;
    for (int i = 0; i < actions; ++i) {
      std::string what;
      try {
        what = act();
      } catch (const std::exception& error) {
        trace.push_back("threw");
        last_error_ = error.what();
        return trace;
      }
      trace.push_back(what + state());
    }
    return trace;
  }

  const std::vector<std::string>& actions() const { return actions_; }
  const std::string& last_error() const { return last_error_; }
  int64_t renewed_buckets() { return model_->logging_data().renewed_buckets; }

 private:
  // Gradients that are not reduced, about which the next forward complains, depend on how far the other ranks have
  // come.
  std::string state() const {
    std::string all;
    for (const torch::Tensor& parameter : net_->parameters()) {
      if (!is_incomplete_) all += bytes_of(parameter.grad()) + '|' + bytes_of(parameter) + '|';
    }
    return all;
  }

  int64_t pick(const std::vector<int64_t>& among) { return among[random_() % among.size()]; }
  bool one_in(unsigned n) { return random_() % n == 0; }
  torch::Tensor input() { return numbers({3, 5}, 100 * group_.rank() + static_cast<int64_t>(random_() % 50)); }
  torch::Tensor& some_gradient() {
    const auto parameters = net_->parameters();
    return parameters[random_() % parameters.size()].mutable_grad();
  }
  torch::Tensor loss(SeveralImpl::Way way = {}) { return model_(input(), way).square().mean(); }
  torch::Tensor loss_of_any_way() {
    const bool leaves_out = one_in(40);
    if (leaves_out) is_incomplete_ = true;
    return loss({.again = one_in(6), .leaves_out = leaves_out});
  }

  // Before the model is wrapped: later ones would change what is on its way to the other ranks.
  std::vector<GradientHook> hooks_into_gradients() {
    std::vector<GradientHook> hooks;
    if (!one_in(3)) return hooks;
    const auto parameters = net_->parameters();
    const torch::Tensor& scaled = parameters[random_() % parameters.size()];
    scaled.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
    const torch::Tensor& changed = parameters[random_() % parameters.size()];
    hooks.emplace_back(changed, [changed] {
      const torch::NoGradGuard no_grad;
      if (changed.grad().defined()) changed.mutable_grad().mul_(0.5);
    });
    return hooks;
  }

  std::string act() {
    const std::vector<std::pair<std::string, std::function<void()>>> all{
        {"step", [&] { step(); }},
        {"step", [&] { step(); }},
        {"step", [&] { step(); }},
        {"accumulate", [&] { accumulate(); }},
        {"backward onto what is there", [&] { loss_of_any_way().backward(); }},
        {"zero_grad to none", [&] { net_->zero_grad(true); }},
        {"zero_grad", [&] { net_->zero_grad(false); }},
        {"optimizer", [&] { optimizer_.step(); }},
        {"forward alone", [&] { loss(); }},
        {"forward without gradients",
         [&] {
           const torch::NoGradGuard no_grad;
           loss();
         }},
        {"evaluation",
         [&] {
           net_->eval();
           loss();
           net_->train();
         }},
        {"two forwards, one backward",
         [&] {
           const torch::Tensor other = loss();
           (loss() + other).backward();
         }},
        {"two forwards, two backwards",
         [&] {
           const torch::Tensor other = loss();
           loss().backward();
           other.backward();
         }},
        {"backward twice",
         [&] {
           const torch::Tensor kept = loss();
           kept.backward({}, /*retain_graph=*/true);
           kept.backward();
         }},
        {"create_graph",
         [&] {
           net_->zero_grad(one_in(2));
           loss().backward({}, std::nullopt, /*create_graph=*/true);
           for (const torch::Tensor& parameter : net_->parameters()) {
             if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad().detach();
           }
         }},
        {"gradient penalty", [&] { penalty(); }},
        {"autograd::grad", [&] { torch::autograd::grad({loss()}, net_->parameters(), {}, true, false, true); }},
        {"gradient none", [&] { some_gradient() = torch::Tensor(); }},
        {"gradient cloned", [&] { replace([](const torch::Tensor& now) { return now.clone(); }); }},
        {"gradient detached", [&] { replace([](const torch::Tensor& now) { return now.detach(); }); }},
        {"gradient elsewhere", [&] { replace(&Program::in_a_larger_one); }},
        {"gradient expanded",
         [&] { replace([](const torch::Tensor& now) { return now.new_full({}, 0.25).expand(now.sizes()); }); }},
        {"gradients clipped",
         [&] {
           const torch::NoGradGuard no_grad;
           for (const torch::Tensor& parameter : net_->parameters()) {
             if (parameter.grad().defined()) parameter.mutable_grad().clamp_(-0.05, 0.05);
           }
         }},
        {"parameter's memory", [&] { net_->first->weight.set_data(net_->first->weight.detach().clone()); }},
        {"set_",
         [&] {
           const torch::NoGradGuard no_grad;
           net_->inner->weight.set_(net_->inner->weight.detach().clone());
         }},
        {"frozen for a step",
         [&] {
           if (!one_in(8)) return;
           net_->last->bias.requires_grad_(false);
           is_incomplete_ = true;
           step();
           net_->last->bias.requires_grad_(true);
         }},
        {"backward that throws",
         [&] {
           if (!one_in(8)) return;
           const GradientHook hook(net_->inner->bias, [] { throw std::domain_error("mine"); });
           fail_backward();
         }},
        {"throws at its end", [&] {
           if (!one_in(8)) return;
           const GradientHook hook(net_->first->bias, [] { throw std::domain_error("mine"); });
           fail_backward();
         }}};
    const auto& [name, action] = all[random_() % all.size()];
    actions_.push_back(name);
    action();
    return name;
  }

  // What is left in the buckets depends on how far the other ranks have come.
  void fail_backward() {
    try {
      loss().backward();
    } catch (const std::domain_error&) {
    }
    net_->zero_grad(true);
  }

  void step() {
    if (!one_in(4)) net_->zero_grad(one_in(2));
    loss_of_any_way().backward();
    if (one_in(2)) optimizer_.step();
  }

  void accumulate() {
    net_->zero_grad(one_in(2));
    {
      const auto local = model_->no_sync();
      loss().backward();
      if (one_in(2)) loss().backward();
    }
    loss_of_any_way().backward();
  }

  void penalty() {
    net_->zero_grad(one_in(2));
    const auto parameters = net_->parameters();
    const auto gradients = torch::autograd::grad({loss()}, parameters, {}, true, /*create_graph=*/true);
    torch::Tensor sum = loss();
    for (const torch::Tensor& gradient : gradients) sum = sum + gradient.square().sum().to(torch::kFloat);
    sum.backward();
  }

  template <typename Change>
  void replace(Change change) {
    torch::Tensor& gradient = some_gradient();
    if (gradient.defined()) gradient = change(gradient);
  }
  static torch::Tensor in_a_larger_one(const torch::Tensor& now) {
    return torch::cat({now.flatten(), now.flatten()}).slice(0, now.numel()).view(now.sizes());
  }

  std::minstd_rand random_;
  bool is_incomplete_ = false;  // a backward has not reached every parameter
  GroupHandle group_;
  Several net_ = make<Several>(1);
  std::vector<GradientHook> hooks_;
  DistributedDataParallel<Several> model_;
  torch::optim::SGD optimizer_;
  std::vector<std::string> actions_;
  std::string last_error_;
};

std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

TEST_CASE("CpuReducer: programs made at random have c10d's bits, and fail where it fails") {
  const char* told = std::getenv("DDPRUN_TEST_PROGRAMS");
  const unsigned programs = told != nullptr ? static_cast<unsigned>(std::stoul(told)) : 30;
  const int size = GENERATE(1, 2, 3);
  const Wire wire = GENERATE(from_range(test::wires({Wire::kShm, Wire::kLate})));
  // Its thread holds buckets for a moment, so that some are renewed, and c10d divides a gradient in its bucket, but
  // multiplies what it copies by the reciprocal: that is another last bit for three ranks.
  if (size == 3 && wire == Wire::kLate) return;
  INFO(size << " ranks on " << wire);
  for (unsigned seed = 1; seed <= programs; ++seed) {
    run_ranks(size,
              [&](const GroupHandle& group) {
                Program expected(seed, group, false);
                const Trace before = expected.run(14);
                Program actual(seed, group, true);
                const Trace after = actual.run(14);
                RANK_INFO("program " << seed << ": " << listed(expected.actions()) << "; c10d's last error "
                                     << expected.last_error().substr(0, 300) << "; own last error "
                                     << actual.last_error().substr(0, 300) << "; buckets renewed "
                                     << expected.renewed_buckets() << " and " << actual.renewed_buckets());
                size_t same = 0;
                while (same < std::min(before.size(), after.size()) && before[same] == after[same]) ++same;
                RANK_INFO("equal for " << same << " actions of " << before.size() << " and " << after.size());
                RANK_CHECK((same == before.size() && same == after.size()));
              },
              {.wire = wire});
  }
}

}  // namespace
}  // namespace ddp
