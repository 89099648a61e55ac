#include "ddprun/schedules/schedule.h"

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <utility>

#include "base/rank_prefix.h"
#include "schedules/scheduler.h"

namespace ddp::schedules {

Schedule::Schedule(std::unique_ptr<Scheduler> scheduler) : scheduler_(std::move(scheduler)) {}
Schedule::Schedule(const Schedule& other) : scheduler_(other.scheduler_->clone()) {}
Schedule& Schedule::operator=(const Schedule& other) {
  if (this != &other) scheduler_ = other.scheduler_->clone();
  return *this;
}
Schedule::Schedule(Schedule&& other) noexcept = default;
Schedule& Schedule::operator=(Schedule&& other) noexcept = default;
Schedule::~Schedule() = default;

void Schedule::start(Groups& groups) {
  scheduler_->start(groups);
}
void Schedule::step(Groups& groups) {
  scheduler_->step(groups);
}

std::string Schedule::save() const {
  nlohmann::json state;
  scheduler_->save(state);
  return state.dump();
}

void Schedule::load(const std::string& state) {
  auto loaded = scheduler_->clone();
  try {
    loaded->load(nlohmann::json::parse(state), /*sequences=*/0);
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(rank_prefix() + "this is not the state of the schedule " + scheduler_->name());
  }
  scheduler_ = std::move(loaded);
}

}  // namespace ddp::schedules
