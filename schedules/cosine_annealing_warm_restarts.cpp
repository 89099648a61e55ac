#include <nlohmann/json.hpp>

#include <cmath>
#include <numbers>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

constexpr double kPi = std::numbers::pi;

class CosineAnnealingWarmRestarts : public Cloneable<CosineAnnealingWarmRestarts> {
 public:
  explicit CosineAnnealingWarmRestarts(const CosineWarmRestartsOptions& options)
      : options_(options), period_(options.t_0) {
    require(options.t_0 >= 1, "Expected positive integer T_0, but got " + std::to_string(options.t_0));
    require(options.t_mult >= 1, "Expected integer T_mult >= 1, but got " + std::to_string(options.t_mult));
  }
  std::string name() const override { return "CosineAnnealingWarmRestarts"; }

  void step(Groups& groups) override {
    require_same_number(groups);
    if (last_epoch_ < 0) {  // however many sequences have taken a step back
      last_epoch_ = -1;
      period_ = options_.t_0;
      within_ = 0;
    } else if (++within_ >= period_) {
      within_ %= period_;
      period_ *= options_.t_mult;
    }
    advance(groups);  // Python's class has a step() of its own, which leaves _step_count at 0
  }
  void save(nlohmann::json& state) const override {
    LRScheduler::save(state);
    state["T_cur"] = within_;
    state["T_i"] = period_;
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    const auto within = state.at("T_cur").get<int64_t>();
    const auto period = state.at("T_i").get<int64_t>();
    require(within >= 0 && period >= 1 && within < period, "the state of " + name() + " has impossible counts");
    LRScheduler::load(state, sequences);
    within_ = within;
    period_ = period;
  }

 protected:
  double get_lr(const Group&, size_t i) override {
    const double angle = kPi * static_cast<double>(within_) / static_cast<double>(period_);
    return options_.eta_min + (base_lrs_[i] - options_.eta_min) * (1 + std::cos(angle)) / 2;
  }

 private:
  CosineWarmRestartsOptions options_;
  int64_t within_ = 0;
  int64_t period_;
};

}  // namespace

Schedule cosine_warm_restarts(const CosineWarmRestartsOptions& options) {
  return Schedule(std::make_unique<CosineAnnealingWarmRestarts>(options));
}

}  // namespace ddp::schedules
