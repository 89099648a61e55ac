#include "optim/lr_scheduler.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "comm/rank_prefix.h"
#include "optim/scheduled_groups.h"

namespace ddp::optim {

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
  auto schedule = schedule_;  // of a composed one, some parts may have gone on before another refuses
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
    const auto state = nlohmann::json::parse(text);
    calls = state.at("calls").get<int64_t>();
    const auto& saved = state.at("groups");
    if (calls < 0 || !saved.is_array() || saved.size() != groups.size()) {
      throw std::invalid_argument(rank_prefix() + "LrScheduler: the optimizer has " + std::to_string(groups.size()) +
                                  " parameter groups, the state another number");
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      groups[i].lr = saved[i].at("lr").get<double>();
      groups[i].initial_lr = saved[i].at("initial_lr").get<double>();
      if (groups[i].momentum) groups[i].momentum = saved[i].at("momentum").get<double>();
    }
    schedule.load(state.at("schedule").dump());
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(rank_prefix() + "LrScheduler: this is no state of a learning-rate schedule");
  }
  schedule_ = std::move(schedule);
  groups_ = std::move(groups);
  calls_ = calls;
  write_groups(optimizer_, groups_);
}

}  // namespace ddp::optim
