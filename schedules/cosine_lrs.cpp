#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "schedules/python_state.h"
#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

class CosineAnnealingLR : public Cloneable<CosineAnnealingLR> {
 public:
  explicit CosineAnnealingLR(const CosineOptions& options) : options_(options) {
    require(options.t_max >= 1, "Expected positive integer T_max, but got " + std::to_string(options.t_max));
  }
  std::string name() const override { return "CosineAnnealingLR"; }

 protected:
  double get_lr(const Group& group, size_t i) override {
    if (is_initial_) return group.lr;
    const auto t_max = static_cast<double>(options_.t_max);
    const double before = 1 + std::cos(std::numbers::pi * static_cast<double>(last_epoch_ - 1) / t_max);
    // If the previous step was at the lowest point, the ratio below is 0 / 0, so the rate is increased by an addition.
    // With a very large t_max, the lowest point is several steps wide; Python divides by 0 there.
    if (was_lowest() || before == 0) {
      return group.lr + (base_lrs_[i] - options_.eta_min) * (1 - std::cos(std::numbers::pi / t_max)) / 2;
    }
    return (1 + std::cos(std::numbers::pi * static_cast<double>(last_epoch_) / t_max)) / before *
               (group.lr - options_.eta_min) +
           options_.eta_min;
  }
  double closed_form_lr(const Group&, size_t i) override {
    return options_.eta_min + (base_lrs_[i] - options_.eta_min) * (1 + std::cos(0.0)) / 2;
  }

 private:
  // Whether the previous step was an odd multiple of t_max.
  bool was_lowest() const {
    const int64_t before = last_epoch_ - 1;
    return before % options_.t_max == 0 && before / options_.t_max % 2 != 0;
  }

  CosineOptions options_;
};

class CosineAnnealingWarmRestarts : public Cloneable<CosineAnnealingWarmRestarts> {
 public:
  explicit CosineAnnealingWarmRestarts(const CosineWarmRestartsOptions& options)
      : options_(options), period_(std::min(options.t_0, kMaxSteps)) {
    require(options.t_0 >= 1, "Expected positive integer T_0, but got " + std::to_string(options.t_0));
    require(options.t_mult >= 1, "Expected integer T_mult >= 1, but got " + std::to_string(options.t_mult));
  }
  std::string name() const override { return "CosineAnnealingWarmRestarts"; }

  void step(Groups& groups) override {
    require_same_number(groups);
    if (last_epoch_ < 0) {  // a sequence may have called undo() several times
      last_epoch_ = -1;
      period_ = std::min(options_.t_0, kMaxSteps);
      within_ = 0;
    } else if (++within_ >= period_) {
      within_ %= period_;
      period_ = period_ > kMaxSteps / options_.t_mult ? kMaxSteps : period_ * options_.t_mult;
    }
    advance(groups);  // Python's class overrides step() and leaves _step_count at 0
  }
  void save(nlohmann::json& state) const override {
    LRScheduler::save(state);
    state["T_cur"] = within_;
    state["T_i"] = period_;
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    LRScheduler::load(state, sequences);
    const int64_t within = step_count_at(state, "T_cur");
    const int64_t period = step_count_at(state, "T_i");
    require(within >= 0 && period >= 1 && within < period, "the state of " + name() + " has impossible counts");
    within_ = within;
    period_ = period;
  }

 protected:
  double get_lr(const Group&, size_t i) override {
    const double angle = std::numbers::pi * static_cast<double>(within_) / static_cast<double>(period_);
    return options_.eta_min + (base_lrs_[i] - options_.eta_min) * (1 + std::cos(angle)) / 2;
  }

 private:
  CosineWarmRestartsOptions options_;
  int64_t within_ = 0;
  int64_t period_;
};

}  // namespace

Schedule cosine(const CosineOptions& options) {
  return Schedule(std::make_unique<CosineAnnealingLR>(options));
}

Schedule cosine_warm_restarts(const CosineWarmRestartsOptions& options) {
  return Schedule(std::make_unique<CosineAnnealingWarmRestarts>(options));
}

}  // namespace ddp::schedules
