#include "schedules/scheduler_list.h"

#include <nlohmann/json.hpp>

#include <string>

#include "schedules/python_state.h"

namespace ddp::schedules {

void SchedulerList::undo() {
  for (auto& schedule : schedules_) schedule.scheduler().undo();
}

void SchedulerList::save(nlohmann::json& state) const {
  state["type"] = name();
  state["_schedulers"] = nlohmann::json::array();
  for (const auto& schedule : schedules_) state["_schedulers"].push_back(nlohmann::json::parse(schedule.save()));
}

void SchedulerList::load(const nlohmann::json& state, int64_t sequences) {
  require_type(state, name());
  const auto& parts = state.at("_schedulers");
  require(parts.is_array() && parts.size() == schedules_.size(),
          name() + " has " + std::to_string(schedules_.size()) + " schedules, the state another number");
  for (size_t i = 0; i < schedules_.size(); ++i) schedules_[i].scheduler().load(parts[i], sequences);
}

}  // namespace ddp::schedules
