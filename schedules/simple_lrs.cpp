#include <map>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

class StepLR : public Cloneable<StepLR> {
 public:
  explicit StepLR(const StepOptions& options) : options_(options) {
    require(options.step_size >= 1,
            "Expected positive integer step_size, but got " + std::to_string(options.step_size));
  }
  std::string name() const override { return "StepLR"; }

 protected:
  double get_lr(const Group& group, size_t) override {
    return last_epoch_ == 0 || last_epoch_ % options_.step_size != 0 ? group.lr : group.lr * options_.gamma;
  }
  double closed_form_lr(const Group&, size_t i) override { return base_lrs_[i]; }

 private:
  StepOptions options_;
};

class ConstantLR : public Cloneable<ConstantLR> {
 public:
  explicit ConstantLR(const ConstantOptions& options) : options_(options) {
    require(options.factor <= 1.0 && options.factor >= 0,
            "Constant multiplicative factor expected to be between 0 and 1.");
  }
  std::string name() const override { return "ConstantLR"; }

 protected:
  double get_lr(const Group& group, size_t) override {
    if (last_epoch_ == 0) return group.lr * options_.factor;
    if (last_epoch_ != options_.total_iters) return group.lr;
    require(options_.factor != 0, "ConstantLR: a factor of 0 cannot be undone, which total_iters=" +
                                      std::to_string(options_.total_iters) + " requires (Python divides by zero here)");
    return group.lr * (1.0 / options_.factor);
  }
  double closed_form_lr(const Group&, size_t i) override {
    return base_lrs_[i] * (options_.factor + (0 >= options_.total_iters ? 1 - options_.factor : 0));
  }

 private:
  ConstantOptions options_;
};

class ExponentialLR : public Cloneable<ExponentialLR> {
 public:
  explicit ExponentialLR(const ExponentialOptions& options) : options_(options) {}
  std::string name() const override { return "ExponentialLR"; }

 protected:
  double get_lr(const Group& group, size_t) override { return is_initial_ ? group.lr : group.lr * options_.gamma; }
  double closed_form_lr(const Group&, size_t i) override { return base_lrs_[i]; }

 private:
  ExponentialOptions options_;
};

class LinearLR : public Cloneable<LinearLR> {
 public:
  explicit LinearLR(const LinearOptions& options) : options_(options) {
    require(options.start_factor <= 1.0 && options.start_factor > 0,
            "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
    require(options.end_factor <= 1.0 && options.end_factor >= 0,
            "Ending multiplicative factor expected to be between 0 and 1.");
    require(options.total_iters >= 1,
            "Expected positive integer total_iters, but got " + std::to_string(options.total_iters));
  }
  std::string name() const override { return "LinearLR"; }

 protected:
  double get_lr(const Group& group, size_t) override {
    if (last_epoch_ == 0) return group.lr * options_.start_factor;
    if (is_initial_ || last_epoch_ > options_.total_iters) return group.lr;
    const double rise = options_.end_factor - options_.start_factor;
    return group.lr * (1.0 + rise / (static_cast<double>(options_.total_iters) * options_.start_factor +
                                     static_cast<double>(last_epoch_ - 1) * rise));
  }
  double closed_form_lr(const Group&, size_t i) override { return base_lrs_[i] * options_.start_factor; }

 private:
  LinearOptions options_;
};

class MultiStepLR : public Cloneable<MultiStepLR> {
 public:
  explicit MultiStepLR(const MultiStepOptions& options) : gamma_(options.gamma) {
    for (const int64_t milestone : options.milestones) ++times_[milestone];
  }
  std::string name() const override { return "MultiStepLR"; }

 protected:
  double get_lr(const Group& group, size_t) override {
    const auto found = times_.find(last_epoch_);
    return found == times_.end() ? group.lr : group.lr * power(gamma_, found->second);
  }
  double closed_form_lr(const Group&, size_t i) override {
    int passed = 0;
    for (const auto& [milestone, times] : times_) passed += milestone <= 0 ? times : 0;
    return base_lrs_[i] * power(gamma_, passed);
  }

 private:
  double gamma_;
  std::map<int64_t, int> times_{};
};

class PolynomialLR : public Cloneable<PolynomialLR> {
 public:
  explicit PolynomialLR(const PolynomialOptions& options) : options_(options) {
    require(options.total_iters >= 1,
            "Expected positive integer total_iters, but got " + std::to_string(options.total_iters));
  }
  std::string name() const override { return "PolynomialLR"; }

 protected:
  double get_lr(const Group& group, size_t) override {
    if (is_initial_ || last_epoch_ > options_.total_iters) return group.lr;
    const auto total = static_cast<double>(options_.total_iters);
    return group.lr * power((1.0 - static_cast<double>(last_epoch_) / total) /
                                (1.0 - static_cast<double>(last_epoch_ - 1) / total),
                            options_.power);
  }
  double closed_form_lr(const Group&, size_t i) override { return base_lrs_[i]; }

 private:
  PolynomialOptions options_;
};

}  // namespace

Schedule step(const StepOptions& options) {
  return Schedule(std::make_unique<StepLR>(options));
}

Schedule constant(const ConstantOptions& options) {
  return Schedule(std::make_unique<ConstantLR>(options));
}

Schedule exponential(const ExponentialOptions& options) {
  return Schedule(std::make_unique<ExponentialLR>(options));
}

Schedule linear(const LinearOptions& options) {
  return Schedule(std::make_unique<LinearLR>(options));
}
Schedule linear_warmup(int64_t steps, int world_size) {
  require(world_size >= 1, "linear_warmup: the world size must be at least 1, got " + std::to_string(world_size));
  return linear({.start_factor = 1.0 / world_size, .end_factor = 1.0, .total_iters = steps});
}

Schedule multi_step(const MultiStepOptions& options) {
  return Schedule(std::make_unique<MultiStepLR>(options));
}

Schedule polynomial(const PolynomialOptions& options) {
  return Schedule(std::make_unique<PolynomialLR>(options));
}

}  // namespace ddp::schedules
