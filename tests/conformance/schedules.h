// The learning-rate schedule of a description.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/training_state.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/optim/lr_scheduler.h>

#include "tests/conformance/net.h"

namespace conformance {

inline ddp::schedules::Schedule make_schedule(const Json& settings) {
  namespace schedules = ddp::schedules;
  const std::string name = settings["name"];
  if (name == "SequentialLR" || name == "ChainedScheduler") {
    std::vector<schedules::Schedule> parts;
    for (const Json& part : settings["parts"]) parts.push_back(make_schedule(part));
    if (name == "ChainedScheduler") return schedules::chained(std::move(parts));
    return schedules::sequential(std::move(parts), settings["milestones"].get<std::vector<int64_t>>());
  }
  const Json& args = settings["args"];
  const auto real = [&](const char* key) { return args[key].get<double>(); };
  const auto integer = [&](const char* key) { return args[key].get<int64_t>(); };
  if (name == "StepLR") return schedules::step({.step_size = integer("step_size"), .gamma = real("gamma")});
  if (name == "MultiStepLR") {
    return schedules::multi_step(
        {.milestones = args["milestones"].get<std::vector<int64_t>>(), .gamma = real("gamma")});
  }
  if (name == "LambdaLR") {
    return schedules::lambda(
        [rate = real("rate")](int64_t step) { return 1 / (1 + rate * static_cast<double>(step)); });
  }
  if (name == "MultiplicativeLR")
    return schedules::multiplicative([factor = real("factor")](int64_t) { return factor; });
  if (name == "ConstantLR")
    return schedules::constant({.factor = real("factor"), .total_iters = integer("total_iters")});
  if (name == "LinearLR") {
    return schedules::linear({.start_factor = real("start_factor"),
                              .end_factor = real("end_factor"),
                              .total_iters = integer("total_iters")});
  }
  if (name == "ExponentialLR") return schedules::exponential({.gamma = real("gamma")});
  if (name == "PolynomialLR")
    return schedules::polynomial({.total_iters = integer("total_iters"), .power = real("power")});
  if (name == "CosineAnnealingLR") return schedules::cosine({.t_max = integer("T_max"), .eta_min = real("eta_min")});
  if (name == "CosineAnnealingWarmRestarts") {
    return schedules::cosine_warm_restarts(
        {.t_0 = integer("T_0"), .t_mult = integer("T_mult"), .eta_min = real("eta_min")});
  }
  if (name == "OneCycleLR") {
    return schedules::one_cycle(
        {.max_lr = {real("max_lr")},
         .total_steps = integer("total_steps"),
         .anneal_strategy = args["anneal_strategy"] == "cos" ? schedules::Anneal::kCosine : schedules::Anneal::kLinear,
         .cycle_momentum = args["cycle_momentum"],
         .three_phase = args["three_phase"]});
  }
  if (name == "CyclicLR") {
    const std::string mode = args["mode"];
    return schedules::cyclic({.base_lr = {real("base_lr")},
                              .max_lr = {real("max_lr")},
                              .step_size_up = integer("step_size_up"),
                              .mode = mode == "triangular"    ? schedules::CyclicMode::kTriangular
                                      : mode == "triangular2" ? schedules::CyclicMode::kTriangular2
                                                              : schedules::CyclicMode::kExpRange,
                              .gamma = real("gamma"),
                              .cycle_momentum = args["cycle_momentum"]});
  }
  throw std::invalid_argument("conformance_program.cpp knows no schedule " + name);
}

// LrScheduler or ReduceLROnPlateau.
class AnySchedule {
 public:
  AnySchedule(torch::optim::Optimizer& optimizer, const Json& settings, const ddp::GroupHandle& group) {
    if (settings["name"] == "ReduceLROnPlateau") {
      const Json& args = settings["args"];
      const ddp::schedules::PlateauOptions options{
          .factor = args["factor"], .patience = args["patience"], .threshold = args["threshold"]};
      plateau_ = std::make_unique<ddp::optim::ReduceLROnPlateau>(optimizer, group, options);
    } else {
      scheduler_ = std::make_unique<ddp::optim::LrScheduler>(optimizer, make_schedule(settings));
    }
  }
  void step(double loss) { scheduler_ ? scheduler_->step() : plateau_->step(loss); }
  ddp::Stateful state() { return scheduler_ ? ddp::Stateful(*scheduler_) : ddp::Stateful(*plateau_); }

 private:
  std::unique_ptr<ddp::optim::LrScheduler> scheduler_;
  std::unique_ptr<ddp::optim::ReduceLROnPlateau> plateau_;
};

}  // namespace conformance
