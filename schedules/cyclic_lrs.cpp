// Cyclical learning rates (Smith 2015) and the 1cycle policy (Smith and Topin 2018).
#include <nlohmann/json.hpp>

#include <cmath>
#include <numbers>
#include <utility>

#include "base/rank_prefix.h"
#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

// The lower and upper bound of a group's rate.
struct Bounds {
  double base_lr;
  double max_lr;
  double base_momentum;
  double max_momentum;
};

class CyclicLR : public Cloneable<CyclicLR> {
 public:
  explicit CyclicLR(const CyclicOptions& options)
      : options_(options),
        up_(static_cast<double>(options.step_size_up)),
        total_(up_ + static_cast<double>(options.step_size_down.value_or(options.step_size_up))) {
    require(options.step_size_up >= 1 && options.step_size_down.value_or(1) >= 0,
            "Expected positive integer step_size_up and step_size_down, but got " +
                std::to_string(options.step_size_up) + " and " +
                std::to_string(options.step_size_down.value_or(options.step_size_up)));
  }
  std::string name() const override { return "CyclicLR"; }

  void start(Groups& groups) override {
    bounds_ = bounds(groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      require(!options_.cycle_momentum || groups[i].momentum,
              "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
      groups[i].lr = bounds_[i].base_lr;
      if (options_.cycle_momentum) groups[i].momentum = bounds_[i].max_momentum;
    }
    LRScheduler::start(groups);
    for (size_t i = 0; i < groups.size(); ++i) base_lrs_[i] = bounds_[i].base_lr;
  }

  void save(nlohmann::json& state) const override {
    LRScheduler::save(state);
    state["_scale_fn_custom"] = nullptr;  // Python's load_state_dict() requires this key
  }
  void load(const nlohmann::json& state, int64_t sequences) override {
    LRScheduler::load(state, sequences);
    bounds_ = base_lrs_.empty() ? std::vector<Bounds>{} : bounds(base_lrs_.size());
  }

 protected:
  double get_lr(const Group&, size_t i) override {
    return base_lrs_[i] + (bounds_[i].max_lr - base_lrs_[i]) * height() * scale();
  }
  void adjust(Groups& groups) override {
    if (!options_.cycle_momentum) return;
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& bounds = bounds_[i];
      groups[i].momentum = bounds.max_momentum - (bounds.max_momentum - bounds.base_momentum) * height() * scale();
    }
  }

 private:
  std::vector<Bounds> bounds(size_t groups) const {
    const auto base_lr = per_group(options_.base_lr, groups, "base_lr");
    const auto max_lr = per_group(options_.max_lr, groups, "max_lr");
    const auto momenta = [&](const std::vector<double>& values, const char* name) {
      return options_.cycle_momentum ? per_group(values, groups, name) : std::vector<double>(groups);
    };
    const auto base_momentum = momenta(options_.base_momentum, "base_momentum");
    const auto max_momentum = momenta(options_.max_momentum, "max_momentum");
    std::vector<Bounds> bounds;
    for (size_t i = 0; i < groups; ++i) bounds.push_back({base_lr[i], max_lr[i], base_momentum[i], max_momentum[i]});
    return bounds;
  }

  double cycle() const { return std::floor(1 + static_cast<double>(last_epoch_) / total_); }

  // The position in the triangle, which goes from 0 to 1 and back.
  double height() const {
    const double x = 1.0 + static_cast<double>(last_epoch_) / total_ - cycle();
    const double ratio = up_ / total_;
    return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  }

  double scale() const {
    const auto step = static_cast<double>(last_epoch_);
    if (options_.scale_fn) return options_.scale_fn(options_.scale_mode == CyclicScale::kCycle ? cycle() : step);
    switch (options_.mode) {
      case CyclicMode::kTriangular2:
        return 1 / std::pow(2.0, cycle() - 1);
      case CyclicMode::kExpRange:
        return power(options_.gamma, step);
      case CyclicMode::kTriangular:
        break;
    }
    return 1.0;
  }

  CyclicOptions options_;
  double up_;     // number of steps with a rising rate
  double total_;  // number of steps in a cycle
  std::vector<Bounds> bounds_{};
};

// The rates and momenta that bound a group's cycle.
struct CycleBounds {
  double initial_lr;
  double max_lr;
  double min_lr;
  double base_momentum;
  double max_momentum;
};

struct Phase {
  double end_step;
  double CycleBounds::*start_lr;
  double CycleBounds::*end_lr;
  double CycleBounds::*start_momentum;
  double CycleBounds::*end_momentum;
};

class OneCycleLR : public Cloneable<OneCycleLR> {
 public:
  explicit OneCycleLR(const OneCycleOptions& options) : options_(options) {
    require(options.total_steps > 0,
            "Expected positive integer total_steps, but got " + std::to_string(options.total_steps));
    require(options.pct_start >= 0 && options.pct_start <= 1,
            "Expected float between 0 and 1 pct_start, but got " + number_text(options.pct_start));
    require(options.div_factor != 0 && options.final_div_factor != 0,
            "OneCycleLR divides rates by div_factor and final_div_factor, but got " + number_text(options.div_factor) +
                " and " + number_text(options.final_div_factor));
    const double warm = options.pct_start * static_cast<double>(options.total_steps);
    const auto last = static_cast<double>(options.total_steps - 1);
    const Phase up{warm - 1, &CycleBounds::initial_lr, &CycleBounds::max_lr, &CycleBounds::max_momentum,
                   &CycleBounds::base_momentum};
    if (options.three_phase) {
      phases_ = {up,
                 {2 * warm - 2, &CycleBounds::max_lr, &CycleBounds::initial_lr, &CycleBounds::base_momentum,
                  &CycleBounds::max_momentum},
                 {last, &CycleBounds::initial_lr, &CycleBounds::min_lr, &CycleBounds::max_momentum,
                  &CycleBounds::max_momentum}};
    } else {
      phases_ = {
          up,
          {last, &CycleBounds::max_lr, &CycleBounds::min_lr, &CycleBounds::base_momentum, &CycleBounds::max_momentum}};
    }
  }
  std::string name() const override { return "OneCycleLR"; }

  void start(Groups& groups) override {
    bounds_ = bounds(groups.size());
    for (const auto& group : groups) {
      require(!options_.cycle_momentum || group.momentum,
              "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      groups[i].initial_lr = bounds_[i].initial_lr;
      if (options_.cycle_momentum) groups[i].momentum = bounds_[i].max_momentum;
    }
    LRScheduler::start(groups);
  }

  void load(const nlohmann::json& state, int64_t sequences) override {
    LRScheduler::load(state, sequences);
    bounds_ = base_lrs_.empty() ? std::vector<CycleBounds>{} : bounds(base_lrs_.size());
  }

  void step(Groups& groups) override {
    require(last_epoch_ < options_.total_steps, "Tried to step " + std::to_string(last_epoch_ + 1) +
                                                    " times. The specified number of total steps is " +
                                                    std::to_string(options_.total_steps));
    LRScheduler::step(groups);
  }

  void save(nlohmann::json& state) const override {
    LRScheduler::save(state);
    // Python's class stores these values in the optimizer's groups, so a Python program needs them to continue the
    // training.
    state["groups"] = nlohmann::json::array();
    for (const auto& bounds : bounds_) {
      nlohmann::json group = {{"initial_lr", bounds.initial_lr}, {"max_lr", bounds.max_lr}, {"min_lr", bounds.min_lr}};
      if (options_.cycle_momentum) {
        group["base_momentum"] = bounds.base_momentum;
        group["max_momentum"] = bounds.max_momentum;
      }
      state["groups"].push_back(std::move(group));
    }
  }

 protected:
  double get_lr(const Group&, size_t i) override {
    const auto [phase, share] = place();
    return anneal(bounds_[i].*phase.start_lr, bounds_[i].*phase.end_lr, share);
  }
  void adjust(Groups& groups) override {
    if (!options_.cycle_momentum) return;
    const auto [phase, share] = place();
    for (size_t i = 0; i < groups.size(); ++i) {
      groups[i].momentum = anneal(bounds_[i].*phase.start_momentum, bounds_[i].*phase.end_momentum, share);
    }
  }

 private:
  std::vector<CycleBounds> bounds(size_t groups) const {
    const auto max_lr = per_group(options_.max_lr, groups, "max_lr");
    const auto momenta = [&](const std::vector<double>& values, const char* name) {
      return options_.cycle_momentum ? per_group(values, groups, name) : std::vector<double>(groups);
    };
    const auto base_momentum = momenta(options_.base_momentum, "base_momentum");
    const auto max_momentum = momenta(options_.max_momentum, "max_momentum");
    std::vector<CycleBounds> bounds;
    for (size_t i = 0; i < groups; ++i) {
      const double initial_lr = max_lr[i] / options_.div_factor;
      bounds.push_back({.initial_lr = initial_lr,
                        .max_lr = max_lr[i],
                        .min_lr = initial_lr / options_.final_div_factor,
                        .base_momentum = base_momentum[i],
                        .max_momentum = max_momentum[i]});
    }
    return bounds;
  }

  struct Place {
    const Phase& phase;
    double share;  // the part of the phase that has passed
  };

  Place place() const {
    const auto step = static_cast<double>(last_epoch_);
    double begin = 0;
    size_t i = 0;
    for (; i + 1 < phases_.size() && step > phases_[i].end_step; ++i) begin = phases_[i].end_step;
    const double length = phases_[i].end_step - begin;
    // Python divides by zero in a phase of length 0. The end of the phase is the only sensible value.
    return {.phase = phases_[i], .share = length == 0 ? 1.0 : (step - begin) / length};
  }

  double anneal(double from, double to, double share) const {
    if (options_.anneal_strategy == Anneal::kLinear) return (to - from) * share + from;
    return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * share) + 1);
  }

  OneCycleOptions options_;
  std::vector<Phase> phases_{};
  std::vector<CycleBounds> bounds_{};
};

}  // namespace

Schedule cyclic(const CyclicOptions& options) {
  return Schedule(std::make_unique<CyclicLR>(options));
}

Schedule one_cycle(const OneCycleOptions& options) {
  return Schedule(std::make_unique<OneCycleLR>(options));
}

}  // namespace ddp::schedules
