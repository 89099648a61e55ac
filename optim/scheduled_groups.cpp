#include "optim/scheduled_groups.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>

namespace ddp::optim {
namespace {

// Where these options keep what schedules call momentum; null where they have none.
double* momentum_of(torch::optim::OptimizerOptions& options) {
  if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) return &sgd->momentum();
  if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options)) return &std::get<0>(adam->betas());
  if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options)) return &std::get<0>(adamw->betas());
  if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropOptions*>(&options)) return &rmsprop->momentum();
  return nullptr;
}

}  // namespace

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

void write_groups(torch::optim::Optimizer& optimizer, const schedules::Groups& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& options = optimizer.param_groups()[i].options();
    options.set_lr(groups[i].lr);
    if (double* momentum = momentum_of(options); momentum && groups[i].momentum) *momentum = *groups[i].momentum;
  }
}

}  // namespace ddp::optim
