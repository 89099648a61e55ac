#include "schedules/scheduler_list.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "schedules/python_state.h"

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

class SequentialLR : public Cloneable<SequentialLR, SchedulerList> {
 public:
  SequentialLR(std::vector<Schedule> schedules, std::vector<int64_t> milestones)
      : Cloneable(std::move(schedules)), milestones_(std::move(milestones)) {
    require(!schedules_.empty(), "SequentialLR expects at least one scheduler, but got no scheduler.");
    require(milestones_.size() + 1 == schedules_.size(),
            "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
            "points, but got number of schedulers " +
                std::to_string(schedules_.size()) + " and the number of milestones to be equal to " +
                std::to_string(milestones_.size()));
    require(std::is_sorted(milestones_.begin(), milestones_.end()), "SequentialLR: milestones must increase");
    for (size_t i = 1; i < schedules_.size(); ++i) {
      require(!schedules_[i].scheduler().is_composed(),
              "SequentialLR: the schedule at index " + std::to_string(i) +
                  " is itself composed, so it cannot start at a milestone; only the first may be");
    }
  }
  std::string name() const override { return "SequentialLR"; }

  void start(Groups& groups) override {
    for (auto& schedule : schedules_) schedule.start(groups);
    for (auto& group : groups) group.lr = *group.initial_lr;
    undo();
    last_epoch_ = 0;
    schedules_[current()].scheduler().initial_step(groups);
  }
  void step(Groups& groups) override {
    ++last_epoch_;
    const size_t index = current();
    auto& scheduler = schedules_[index].scheduler();
    if (index > 0 && milestones_[index - 1] == last_epoch_) {
      scheduler.restart(groups);
    } else {
      scheduler.step(groups);
    }
  }
  void restart(Groups&) override { require(false, "SequentialLR cannot start at a milestone"); }
  void save(nlohmann::json& state) const override {
    SchedulerList::save(state);
    state["last_epoch"] = last_epoch_;
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    SchedulerList::load(state, sequences + 1);
    const int64_t last_epoch = step_count_at(state, "last_epoch");
    require(last_epoch >= 0, "the state of SequentialLR has a negative number of steps");
    last_epoch_ = last_epoch;
  }

 private:
  // Returns the index of the schedule that is active at this epoch.
  size_t current() const {
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
    return static_cast<size_t>(next - milestones_.begin());
  }

  std::vector<int64_t> milestones_;
  int64_t last_epoch_ = 0;
};

}  // namespace

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
          name() + " has " + std::to_string(schedules_.size()) + " schedules, but the state has a different number");
  for (size_t i = 0; i < schedules_.size(); ++i) schedules_[i].scheduler().load(parts[i], sequences);
}

Schedule chained(std::vector<Schedule> schedules) {
  return Schedule(std::make_unique<ChainedScheduler>(std::move(schedules)));
}

Schedule sequential(std::vector<Schedule> schedules, std::vector<int64_t> milestones) {
  return Schedule(std::make_unique<SequentialLR>(std::move(schedules), std::move(milestones)));
}

}  // namespace ddp::schedules
