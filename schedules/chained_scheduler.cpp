#include <utility>

#include "schedules/scheduler_list.h"

namespace ddp::schedules {
namespace {

class ChainedScheduler : public Cloneable<ChainedScheduler, SchedulerList> {
 public:
  explicit ChainedScheduler(std::vector<Schedule> schedules) : Cloneable(std::move(schedules)) {
    require(!schedules_.empty(),
            "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.");
  }
  std::string name() const override { return "ChainedScheduler"; }

  void start(Groups& groups) override {
    for (auto& schedule : schedules_) schedule.start(groups);
  }
  void step(Groups& groups) override {
    for (auto& schedule : schedules_) schedule.step(groups);
  }
  void restart(Groups&) override { require(false, "ChainedScheduler cannot start at a milestone"); }
};

}  // namespace

Schedule chained(std::vector<Schedule> schedules) {
  return Schedule(std::make_unique<ChainedScheduler>(std::move(schedules)));
}

}  // namespace ddp::schedules
