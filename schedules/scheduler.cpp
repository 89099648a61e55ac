#include "schedules/scheduler.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/rank_prefix.h"
#include "schedules/python_state.h"

namespace ddp::schedules {

void require(bool valid, const std::string& message) {
  if (!valid) throw std::invalid_argument(rank_prefix() + message);
}

double power(double base, double exponent) {
  const double result = std::pow(base, exponent);
  require(
      std::isfinite(result) || !std::isfinite(base) || !std::isfinite(exponent),
      "the learning rate's factor " + number_text(base) + " ** " + number_text(exponent) + " is not a finite number");
  return result;
}

std::vector<double> per_group(const std::vector<double>& values, size_t count, const char* name) {
  if (values.size() == 1) return std::vector<double>(count, values.front());
  require(values.size() == count, std::string(name) + " must have the same length as optimizer.param_groups. " + name +
                                      " has " + std::to_string(values.size()) + " values, param_groups has " +
                                      std::to_string(count) + ".");
  return values;
}

void LRScheduler::start(Groups& groups) {
  base_lrs_.clear();
  for (auto& group : groups) {
    if (!group.initial_lr) group.initial_lr = group.lr;
    base_lrs_.push_back(*group.initial_lr);
  }
  last_epoch_ = -1;
  initial_step(groups);
}

void LRScheduler::initial_step(Groups& groups) {
  step_count_ = 0;
  is_initial_ = true;
  step(groups);
  is_initial_ = false;
}

void LRScheduler::require_same_number(const Groups& groups) const {
  require(groups.size() == base_lrs_.size(), name() + " was started with " + std::to_string(base_lrs_.size()) +
                                                 " parameter groups, but there are " + std::to_string(groups.size()));
}

void LRScheduler::step(Groups& groups) {
  require_same_number(groups);
  ++step_count_;
  advance(groups);
}

void LRScheduler::advance(Groups& groups) {
  ++last_epoch_;
  for (size_t i = 0; i < groups.size(); ++i) groups[i].lr = get_lr(groups[i], i);
  adjust(groups);
}

void LRScheduler::restart(Groups& groups) {
  last_epoch_ = 0;
  for (size_t i = 0; i < groups.size(); ++i) groups[i].lr = closed_form_lr(groups[i], i);
  adjust(groups);
}

void LRScheduler::save(nlohmann::json& state) const {
  state["type"] = name();
  state["last_epoch"] = last_epoch_;
  state["_step_count"] = step_count_;
  state["base_lrs"] = base_lrs_;
}

void LRScheduler::load(const nlohmann::json& state, int64_t sequences) {
  require_type(state, name());
  const auto base_lrs = state.at("base_lrs").get<std::vector<double>>();
  const int64_t last_epoch = step_count_at(state, "last_epoch");
  const int64_t step_count = step_count_at(state, "_step_count");
  // In a sequence, a scheduler that has not been reached yet is one step back; in nested sequences, it is one step back
  // for each of them. A scheduler that was not started has the count -1.
  require(last_epoch >= -std::max<int64_t>(sequences, 1) && step_count >= 0,
          "the state of " + name() + " has a negative number of steps");
  require(base_lrs_.empty() || base_lrs.size() == base_lrs_.size(),
          name() + " was started with " + std::to_string(base_lrs_.size()) + " parameter groups, the state with " +
              std::to_string(base_lrs.size()));
  base_lrs_ = base_lrs;
  last_epoch_ = last_epoch;
  step_count_ = step_count;
}

}  // namespace ddp::schedules
