// Functions for schedulers that consist of other schedulers.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include "schedules/scheduler.h"

namespace ddp::schedules {

class SchedulerList : public Scheduler {
 public:
  explicit SchedulerList(std::vector<Schedule> schedules) : schedules_(std::move(schedules)) {}

  bool is_composed() const override { return true; }
  void undo() override;
  void initial_step(Groups& groups) override { step(groups); }
  void save(nlohmann::json& state) const override;
  void load(const nlohmann::json& state, int64_t sequences) override;

 protected:
  std::vector<Schedule> schedules_;
};

}  // namespace ddp::schedules
