// Cyclical learning rates (Smith 2015).
#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

// The lower and the upper bound that a group goes between, and back.
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
    state["_scale_fn_custom"] = nullptr;  // Python's load_state_dict() asks for it
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

  // Of the triangle, from 0 to 1 and back.
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
  double up_;     // steps
  double total_;  // steps of a cycle
  std::vector<Bounds> bounds_{};
};

}  // namespace

Schedule cyclic(const CyclicOptions& options) {
  return Schedule(std::make_unique<CyclicLR>(options));
}

}  // namespace ddp::schedules
