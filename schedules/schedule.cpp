#include "ddprun/schedules/schedule.h"

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <utility>

#include "base/rank_prefix.h"
#include "schedules/rule.h"

namespace ddp::schedules {

Schedule::Schedule(std::unique_ptr<Rule> rule) : rule_(std::move(rule)) {}
Schedule::Schedule(const Schedule& other) : rule_(other.rule_->clone()) {}
Schedule& Schedule::operator=(const Schedule& other) {
  if (this != &other) rule_ = other.rule_->clone();
  return *this;
}
Schedule::Schedule(Schedule&& other) noexcept = default;
Schedule& Schedule::operator=(Schedule&& other) noexcept = default;
Schedule::~Schedule() = default;

void Schedule::start(Groups& groups) {
  rule_->start(groups);
}
void Schedule::step(Groups& groups) {
  rule_->step(groups);
}

std::string Schedule::save() const {
  nlohmann::json state;
  rule_->save(state);
  return state.dump();
}

void Schedule::load(const std::string& state) {
  auto loaded = rule_->clone();
  try {
    loaded->load(nlohmann::json::parse(state), /*sequences=*/0);
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(rank_prefix() + "this is no state of the schedule " + rule_->name());
  }
  rule_ = std::move(loaded);
}

}  // namespace ddp::schedules
