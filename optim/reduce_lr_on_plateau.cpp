#include <ATen/ops/scalar_tensor.h>
#include <nlohmann/json.hpp>

#include <utility>

#include <ddprun/comm/collectives.h>

#include "ddprun/optim/lr_scheduler.h"
#include "optim/scheduled_groups.h"

namespace ddp::optim {

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

// With the rates: Python's class has them in its state, and a program there would go on with those of its beginning.
std::string ReduceLROnPlateau::save() const {
  auto state = nlohmann::json::parse(plateau_.save());
  state["_last_lr"] = get_last_lr();
  return state.dump();
}

}  // namespace ddp::optim
