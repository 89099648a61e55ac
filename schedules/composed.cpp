// Schedules of schedules: sequential and chained.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "schedules/python_state.h"
#include "schedules/rule.h"

namespace ddp::schedules {
namespace {

class ComposedRule : public Rule {
 public:
  explicit ComposedRule(std::vector<Schedule> schedules) : schedules_(std::move(schedules)) {}

  bool is_composed() const override { return true; }
  void undo() override {
    for (auto& schedule : schedules_) schedule.rule().undo();
  }
  void initial_step(Groups& groups) override { step(groups); }
  void save(nlohmann::json& state) const override {
    state["type"] = name();
    state["_schedulers"] = nlohmann::json::array();
    for (const auto& schedule : schedules_) state["_schedulers"].push_back(nlohmann::json::parse(schedule.save()));
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    require_type(state, name());
    const auto& parts = state.at("_schedulers");
    require(parts.is_array() && parts.size() == schedules_.size(),
            name() + " has " + std::to_string(schedules_.size()) + " schedules, the state another number");
    for (size_t i = 0; i < schedules_.size(); ++i) schedules_[i].rule().load(parts[i], sequences);
  }

 protected:
  std::vector<Schedule> schedules_;
};

class SequentialRule : public CloneableRule<SequentialRule, ComposedRule> {
 public:
  SequentialRule(std::vector<Schedule> schedules, std::vector<int64_t> milestones)
      : CloneableRule(std::move(schedules)), milestones_(std::move(milestones)) {
    require(!schedules_.empty(), "SequentialLR expects at least one scheduler, but got no scheduler.");
    require(milestones_.size() + 1 == schedules_.size(),
            "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
            "points, but got number of schedulers " +
                std::to_string(schedules_.size()) + " and the number of milestones to be equal to " +
                std::to_string(milestones_.size()));
    require(std::is_sorted(milestones_.begin(), milestones_.end()), "SequentialLR: milestones must increase");
    for (size_t i = 1; i < schedules_.size(); ++i) {
      require(!schedules_[i].rule().is_composed(),
              "SequentialLR: the schedule at index " + std::to_string(i) +
                  " is itself composed, so it cannot start at a milestone; only the first may be");
    }
  }
  std::string name() const override { return "SequentialLR"; }

  void start(Groups& groups) override {
    for (auto& schedule : schedules_) schedule.start(groups);
    for (auto& group : groups) group.lr = *group.initial_lr;
    undo();
    schedules_.front().rule().initial_step(groups);
    last_epoch_ = 0;
  }
  void step(Groups& groups) override {
    ++last_epoch_;
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
    const auto index = static_cast<size_t>(next - milestones_.begin());
    auto& rule = schedules_[index].rule();
    if (index > 0 && milestones_[index - 1] == last_epoch_) {
      rule.restart(groups);
    } else {
      rule.step(groups);
    }
  }
  void restart(Groups&) override { require(false, "SequentialLR cannot start at a milestone"); }
  void save(nlohmann::json& state) const override {
    ComposedRule::save(state);
    state["last_epoch"] = last_epoch_;
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    const auto last_epoch = state.at("last_epoch").get<int64_t>();
    require(last_epoch >= 0, "the state of SequentialLR counts steps below 0");
    ComposedRule::load(state, sequences + 1);
    last_epoch_ = last_epoch;
  }

 private:
  std::vector<int64_t> milestones_;
  int64_t last_epoch_ = 0;
};

class ChainedRule : public CloneableRule<ChainedRule, ComposedRule> {
 public:
  explicit ChainedRule(std::vector<Schedule> schedules) : CloneableRule(std::move(schedules)) {
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

Schedule sequential(std::vector<Schedule> schedules, std::vector<int64_t> milestones) {
  return Schedule(std::make_unique<SequentialRule>(std::move(schedules), std::move(milestones)));
}
Schedule chained(std::vector<Schedule> schedules) {
  return Schedule(std::make_unique<ChainedRule>(std::move(schedules)));
}

}  // namespace ddp::schedules
