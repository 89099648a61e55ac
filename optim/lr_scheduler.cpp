#include "ddprun/optim/lr_scheduler.h"

#include <ATen/ops/scalar_tensor.h>
#include <nlohmann/json.hpp>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/detail/optim/own_optimizer.h>
#include <ddprun/schedules/schedule.h>

#include "base/rank_prefix.h"
#include "schedules/python_state.h"

namespace ddp::optim {
namespace {

// Returns the address of the option that schedules call momentum, or null if the options have none.
double* momentum_of(torch::optim::OptimizerOptions& options) {
  if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) return &sgd->momentum();
  if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options)) return &std::get<0>(adam->betas());
  if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options)) return &std::get<0>(adamw->betas());
  if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropOptions*>(&options)) return &rmsprop->momentum();
  if (auto* listed = dynamic_cast<ListedOptions*>(&options)) {
    if (auto* momentum = listed->find<double>("momentum")) return momentum;
    if (auto* betas = listed->find<std::tuple<double, double>>("betas")) return &std::get<0>(*betas);
  }
  return nullptr;
}

// Returns the groups' learning rates and momenta (SGD's momentum, Adam's first beta, RMSprop's momentum). The initial
// rates are copied from `previous` for the groups that it contains.
schedules::Groups read_groups(torch::optim::Optimizer& optimizer, const schedules::Groups& previous) {
  schedules::Groups groups;
  for (auto& group : optimizer.param_groups()) {
    auto& options = group.options();
    schedules::Group read{.lr = options.get_lr()};
    if (const double* momentum = momentum_of(options)) read.momentum = *momentum;
    if (groups.size() < previous.size()) read.initial_lr = previous[groups.size()].initial_lr;
    groups.push_back(read);
  }
  return groups;
}

// Sets the groups' learning rates and momenta.
void write_groups(torch::optim::Optimizer& optimizer, const schedules::Groups& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& options = optimizer.param_groups()[i].options();
    options.set_lr(groups[i].lr);
    if (double* momentum = momentum_of(options); momentum && groups[i].momentum) *momentum = *groups[i].momentum;
  }
}

// Converts the state_dict() of Python's scheduler to the format of save().
nlohmann::json from_python(const nlohmann::json& schedule, int64_t interval) {
  const auto progress = schedules::python_progress(schedule);
  if (progress.last_lrs.size() != progress.initial_lrs.size()) {
    throw std::invalid_argument(rank_prefix() + "LrScheduler: the state has " +
                                std::to_string(progress.initial_lrs.size()) + " initial and " +
                                std::to_string(progress.last_lrs.size()) + " last learning rates");
  }
  if (progress.last_epoch < 0 || progress.last_epoch > std::numeric_limits<int64_t>::max() / interval) {
    throw std::invalid_argument(rank_prefix() + "LrScheduler: the state has an invalid number of steps, " +
                                std::to_string(progress.last_epoch));
  }
  nlohmann::json state = {{"calls", progress.last_epoch * interval}, {"schedule", schedule}};
  state["groups"] = nlohmann::json::array();
  for (size_t i = 0; i < progress.last_lrs.size(); ++i) {
    state["groups"].push_back({{"lr", progress.last_lrs[i]}, {"initial_lr", progress.initial_lrs[i]}});
  }
  return state;
}

}  // namespace

LrScheduler::LrScheduler(torch::optim::Optimizer& optimizer, schedules::Schedule schedule,
                         const LrSchedulerOptions& options)
    : optimizer_(optimizer), schedule_(std::move(schedule)), options_(options) {
  if (options.interval < 1) {
    throw std::invalid_argument(rank_prefix() + "LrScheduler: the interval must be at least 1, got " +
                                std::to_string(options.interval));
  }
  groups_ = read_groups(optimizer_, {});
  schedule_.start(groups_);
  write_groups(optimizer_, groups_);
}

void LrScheduler::step() {
  if ((calls_ + 1) % options_.interval != 0) {
    ++calls_;
    return;
  }
  auto schedule = schedule_;  // a copy: if a part of a composed schedule throws, other parts may have advanced
  auto groups = read_groups(optimizer_, groups_);
  schedule.step(groups);
  ++calls_;
  schedule_ = std::move(schedule);
  groups_ = std::move(groups);
  write_groups(optimizer_, groups_);
}

std::vector<double> LrScheduler::get_last_lr() const {
  std::vector<double> rates;
  for (const auto& group : groups_) rates.push_back(group.lr);
  return rates;
}

std::string LrScheduler::save() const {
  nlohmann::json state = {{"calls", calls_}, {"groups", nlohmann::json::array()}};
  state["schedule"] = nlohmann::json::parse(schedule_.save());
  for (const auto& group : groups_) {
    nlohmann::json saved = {{"lr", group.lr}, {"initial_lr", group.initial_lr.value_or(group.lr)}};
    if (group.momentum) saved["momentum"] = *group.momentum;
    state["groups"].push_back(std::move(saved));
  }
  return state.dump();
}

void LrScheduler::load(const std::string& text) {
  auto schedule = schedule_;
  auto groups = groups_;
  int64_t calls = 0;
  try {
    auto state = nlohmann::json::parse(text);
    if (!state.contains("schedule")) state = from_python(state, options_.interval);
    calls = state.at("calls").get<int64_t>();
    const auto& saved = state.at("groups");
    if (calls < 0 || !saved.is_array() || saved.size() != groups.size()) {
      throw std::invalid_argument(rank_prefix() + "LrScheduler: the optimizer has " + std::to_string(groups.size()) +
                                  " parameter groups, but the state has a different number");
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      groups[i].lr = saved[i].at("lr").get<double>();
      groups[i].initial_lr = saved[i].at("initial_lr").get<double>();
      // Python stores the momentum only in the optimizer's state.
      if (groups[i].momentum) groups[i].momentum = saved[i].value("momentum", *groups[i].momentum);
    }
    schedule.load(state.at("schedule").dump());
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(rank_prefix() + "LrScheduler: this is not a learning-rate schedule's state");
  }
  schedule_ = std::move(schedule);
  groups_ = std::move(groups);
  calls_ = calls;
  write_groups(optimizer_, groups_);
}

ReduceLROnPlateau::ReduceLROnPlateau(torch::optim::Optimizer& optimizer, schedules::PlateauOptions options)
    : optimizer_(optimizer), plateau_(std::move(options)) {}

ReduceLROnPlateau::ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const GroupHandle& group,
                                     schedules::PlateauOptions options)
    : optimizer_(optimizer), group_(group), plateau_(std::move(options)) {}

void ReduceLROnPlateau::step(double metric) {
  if (group_ && group_->size() > 1) {
    const auto mean = at::scalar_tensor(metric, at::TensorOptions().dtype(at::kDouble).device(group_->device()));
    all_reduce(mean, *group_, ReduceOp::kAvg);
    metric = mean.item<double>();
  }
  auto groups = read_groups(optimizer_, {});
  plateau_.step(metric, groups);
  write_groups(optimizer_, groups);
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

// Also saves the learning rates: Python's class has them in its state, and without them it would continue with its
// initial rates.
std::string ReduceLROnPlateau::save() const {
  auto state = nlohmann::json::parse(plateau_.save());
  state["_last_lr"] = get_last_lr();
  return state.dump();
}

}  // namespace ddp::optim
