// Schedules that follow a line, a power or a cosine: linear, polynomial, cosine, cosine_warm_restarts.
#include <nlohmann/json.hpp>

#include <cmath>
#include <numbers>

#include "base/rank_prefix.h"
#include "schedules/rule.h"

namespace ddp::schedules {
namespace {

constexpr double kPi = std::numbers::pi;

class LinearRule : public CloneableRule<LinearRule> {
 public:
  explicit LinearRule(const LinearOptions& options) : options_(options) {
    require(options.start_factor <= 1.0 && options.start_factor > 0,
            "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
    require(options.end_factor <= 1.0 && options.end_factor >= 0,
            "Ending multiplicative factor expected to be between 0 and 1.");
    require(options.total_iters >= 1,
            "Expected positive integer total_iters, but got " + std::to_string(options.total_iters));
  }
  std::string name() const override { return "LinearLR"; }

 protected:
  double next_lr(const Group& group, size_t) override {
    if (last_epoch_ == 0) return group.lr * options_.start_factor;
    if (is_initial_ || last_epoch_ > options_.total_iters) return group.lr;
    const double rise = options_.end_factor - options_.start_factor;
    return group.lr * (1.0 + rise / (static_cast<double>(options_.total_iters) * options_.start_factor +
                                     static_cast<double>(last_epoch_ - 1) * rise));
  }
  double first_lr(const Group&, size_t i) override { return base_lrs_[i] * options_.start_factor; }

 private:
  LinearOptions options_;
};

class PolynomialRule : public CloneableRule<PolynomialRule> {
 public:
  explicit PolynomialRule(const PolynomialOptions& options) : options_(options) {
    require(options.total_iters >= 1,
            "Expected positive integer total_iters, but got " + std::to_string(options.total_iters));
  }
  std::string name() const override { return "PolynomialLR"; }

 protected:
  double next_lr(const Group& group, size_t) override {
    if (is_initial_ || last_epoch_ > options_.total_iters) return group.lr;
    const auto total = static_cast<double>(options_.total_iters);
    return group.lr * std::pow((1.0 - static_cast<double>(last_epoch_) / total) /
                                   (1.0 - static_cast<double>(last_epoch_ - 1) / total),
                               options_.power);
  }
  double first_lr(const Group&, size_t i) override { return base_lrs_[i]; }

 private:
  PolynomialOptions options_;
};

class CosineRule : public CloneableRule<CosineRule> {
 public:
  explicit CosineRule(const CosineOptions& options) : options_(options) {
    require(options.t_max >= 1, "Expected positive integer T_max, but got " + std::to_string(options.t_max));
  }
  std::string name() const override { return "CosineAnnealingLR"; }

 protected:
  double next_lr(const Group& group, size_t i) override {
    if (is_initial_) return group.lr;
    const auto t_max = static_cast<double>(options_.t_max);
    // At its lowest point the ratio below is 0 / 0: from there the rate rises by an addition.
    if ((last_epoch_ - 1 - options_.t_max) % (2 * options_.t_max) == 0) {
      return group.lr + (base_lrs_[i] - options_.eta_min) * (1 - std::cos(kPi / t_max)) / 2;
    }
    return (1 + std::cos(kPi * static_cast<double>(last_epoch_) / t_max)) /
               (1 + std::cos(kPi * static_cast<double>(last_epoch_ - 1) / t_max)) * (group.lr - options_.eta_min) +
           options_.eta_min;
  }
  double first_lr(const Group&, size_t i) override {
    return options_.eta_min + (base_lrs_[i] - options_.eta_min) * (1 + std::cos(0.0)) / 2;
  }

 private:
  CosineOptions options_;
};

class CosineWarmRestartsRule : public CloneableRule<CosineWarmRestartsRule> {
 public:
  explicit CosineWarmRestartsRule(const CosineWarmRestartsOptions& options) : options_(options), period_(options.t_0) {
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
    SimpleRule::save(state);
    state["T_cur"] = within_;
    state["T_i"] = period_;
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    const auto within = state.at("T_cur").get<int64_t>();
    const auto period = state.at("T_i").get<int64_t>();
    require(within >= 0 && period >= 1 && within < period, "the state of " + name() + " has impossible counts");
    SimpleRule::load(state, sequences);
    within_ = within;
    period_ = period;
  }

 protected:
  double next_lr(const Group&, size_t i) override {
    const double angle = kPi * static_cast<double>(within_) / static_cast<double>(period_);
    return options_.eta_min + (base_lrs_[i] - options_.eta_min) * (1 + std::cos(angle)) / 2;
  }

 private:
  CosineWarmRestartsOptions options_;
  int64_t within_ = 0;
  int64_t period_;
};

}  // namespace

Schedule linear(const LinearOptions& options) {
  return Schedule(std::make_unique<LinearRule>(options));
}
Schedule linear_warmup(int64_t steps, int world_size) {
  require(world_size >= 1, "linear_warmup: the world size must be at least 1, got " + std::to_string(world_size));
  return linear({.start_factor = 1.0 / world_size, .end_factor = 1.0, .total_iters = steps});
}
Schedule polynomial(const PolynomialOptions& options) {
  return Schedule(std::make_unique<PolynomialRule>(options));
}
Schedule cosine(const CosineOptions& options) {
  return Schedule(std::make_unique<CosineRule>(options));
}
Schedule cosine_warm_restarts(const CosineWarmRestartsOptions& options) {
  return Schedule(std::make_unique<CosineWarmRestartsRule>(options));
}

}  // namespace ddp::schedules
