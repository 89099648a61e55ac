// Optimizers under Python's names: which hyper-parameters and which state each has. Not installed.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <variant>

#include <ddprun/detail/optim/own_optimizer.h>

namespace ddp {

// Hyper-parameters and state of each optimizer, under Python's names. One list serves saving and loading.
struct SgdKind {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* kName = "SGD";

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("momentum", options.momentum());
    visit("dampening", options.dampening());
    visit("weight_decay", options.weight_decay());
    visit("nesterov", options.nesterov());
  }
  template <typename Visit>
  static void state(State& state, const Options&, Visit&& visit) {
    visit("momentum_buffer", state.momentum_buffer());
  }
  static constexpr std::array kFields = {"momentum_buffer"};
};

template <typename OptionsType, typename StateType>
struct AdamLikeKind {
  using Options = OptionsType;
  using State = StateType;

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("betas", options.betas());
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("amsgrad", options.amsgrad());
  }
  template <typename Visit>
  static void state(State& state, const Options& options, Visit&& visit) {
    visit("step", state.step());
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    if (options.amsgrad()) visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  static constexpr std::array kFields = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
};

struct AdamKind : AdamLikeKind<torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* kName = "Adam";
};
struct AdamWKind : AdamLikeKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* kName = "AdamW";
};

struct AdagradKind {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr const char* kName = "Adagrad";

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("lr_decay", options.lr_decay());
    visit("weight_decay", options.weight_decay());
    visit("initial_accumulator_value", options.initial_accumulator_value());
    visit("eps", options.eps());
  }
  template <typename Visit>
  static void state(State& state, const Options&, Visit&& visit) {
    visit("step", state.step());
    visit("sum", state.sum());
  }
  static constexpr std::array kFields = {"step", "sum"};
};

struct RmspropKind {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr const char* kName = "RMSprop";

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("momentum", options.momentum());
    visit("alpha", options.alpha());
    visit("eps", options.eps());
    visit("centered", options.centered());
    visit("weight_decay", options.weight_decay());
  }
  template <typename Visit>
  static void state(State& state, const Options& options, Visit&& visit) {
    visit("step", state.step());
    visit("square_avg", state.square_avg());
    if (options.momentum() > 0) visit("momentum_buffer", state.momentum_buffer());
    if (options.centered()) visit("grad_avg", state.grad_avg());
  }
  static constexpr std::array kFields = {"step", "square_avg", "momentum_buffer", "grad_avg"};
};

// Its state has a form of its own: lbfgs_state.h.
struct LbfgsKind {
  using Options = torch::optim::LBFGSOptions;
  using State = torch::optim::LBFGSParamState;
  static constexpr const char* kName = "LBFGS";

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("max_iter", options.max_iter());
    visit("max_eval", options.max_eval());
    visit("tolerance_grad", options.tolerance_grad());
    visit("tolerance_change", options.tolerance_change());
    visit("history_size", options.history_size());
    visit("line_search_fn", options.line_search_fn());
  }
};

// The optimizers of ddp::optim whose options list themselves; their state is a FusedOptimizer's.
struct ListedKind {
  using Options = torch::optim::OptimizerOptions;
  struct State : torch::optim::OptimizerCloneableParamState<State> {};

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    for (const auto& [name, value] : dynamic_cast<optim::ListedOptions&>(options).list()) {
      std::visit([&, key = name](auto* each) { visit(key, *each); }, value);
    }
  }
  template <typename Visit>
  static void state(State&, const Options&, Visit&&) {}
};

inline constexpr auto kKinds = std::tuple<SgdKind, AdamKind, AdamWKind, AdagradKind, RmspropKind, LbfgsKind>{};
inline constexpr const char* kKnown =
    "torch::optim::SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS and of ddp::optim's optimizers";

// Python's name of the optimizer that has `options`, which are of the kind `Kind`.
template <typename Kind>
std::string kind_name(const torch::optim::OptimizerOptions& options) {
  if constexpr (std::is_same_v<Kind, ListedKind>) {
    return dynamic_cast<const optim::ListedOptions&>(options).optimizer_name();
  } else {
    return Kind::kName;
  }
}

// Whether `options` are of the kind `Kind`; listed options have a class for each optimizer, so they are compared with
// `first`.
template <typename Kind>
bool is_of_kind(const torch::optim::OptimizerOptions& options, const torch::optim::OptimizerOptions& first) {
  if constexpr (std::is_same_v<Kind, ListedKind>) {
    return typeid(options) == typeid(first);
  } else {
    return dynamic_cast<const typename Kind::Options*>(&options) != nullptr;
  }
}

// Calls `use` with the kind for which `is_it` says yes; returns false if it does for no kind.
template <typename IsIt, typename Use>
bool with_kind(IsIt&& is_it, Use&& use) {
  return std::apply([&](auto... kind) { return ((is_it(kind) && (use(kind), true)) || ...); }, kKinds);
}

template <typename Use>
bool with_kind_of(const torch::optim::Optimizer& optimizer, Use&& use) {
  // The options identify the kind, not the optimizer's class: other implementations share them.
  if (optimizer.param_groups().empty() || !optimizer.param_groups().front().has_options()) return false;
  const auto& options = optimizer.param_groups().front().options();
  if (dynamic_cast<const optim::ListedOptions*>(&options) != nullptr) return use(ListedKind()), true;
  return with_kind(
      [&](auto kind) { return dynamic_cast<const typename decltype(kind)::Options*>(&options) != nullptr; }, use);
}

}  // namespace ddp
