// Schedules that multiply the rate by functions or constants: lambda, multiplicative, step, multi_step, constant,
// exponential.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "schedules/rule.h"

namespace ddp::schedules {
namespace {

// One function for each group; a single one serves all.
class Lambdas {
 public:
  explicit Lambdas(std::vector<Lambda> factors) : factors_(std::move(factors)) {
    require(!factors_.empty(), "Expected at least 1 lr_lambdas, but got 0");
    for (const auto& factor : factors_) require(factor != nullptr, "lr_lambda should be a function, but is empty");
  }
  void check(size_t groups) const {
    require(factors_.size() == 1 || factors_.size() == groups,
            "Expected " + std::to_string(groups) + " lr_lambdas, but got " + std::to_string(factors_.size()));
  }
  double operator()(size_t i, int64_t step) const {
    return factors_.size() == 1 ? factors_[0](step) : factors_[i](step);
  }

 private:
  std::vector<Lambda> factors_;
};

class LambdaRule : public CloneableRule<LambdaRule> {
 public:
  explicit LambdaRule(std::vector<Lambda> factors) : factors_(std::move(factors)) {}
  std::string name() const override { return "LambdaLR"; }
  void start(Groups& groups) override {
    factors_.check(groups.size());
    SimpleRule::start(groups);
  }

 protected:
  double next_lr(const Group&, size_t i) override { return base_lrs_[i] * factors_(i, last_epoch_); }

 private:
  Lambdas factors_;
};

class MultiplicativeRule : public CloneableRule<MultiplicativeRule> {
 public:
  explicit MultiplicativeRule(std::vector<Lambda> factors) : factors_(std::move(factors)) {}
  std::string name() const override { return "MultiplicativeLR"; }
  void start(Groups& groups) override {
    factors_.check(groups.size());
    SimpleRule::start(groups);
  }

 protected:
  double next_lr(const Group& group, size_t i) override {
    return is_initial_ ? group.lr : group.lr * factors_(i, last_epoch_);
  }

 private:
  Lambdas factors_;
};

class StepRule : public CloneableRule<StepRule> {
 public:
  explicit StepRule(const StepOptions& options) : options_(options) {
    require(options.step_size >= 1,
            "Expected positive integer step_size, but got " + std::to_string(options.step_size));
  }
  std::string name() const override { return "StepLR"; }

 protected:
  double next_lr(const Group& group, size_t) override {
    return last_epoch_ == 0 || last_epoch_ % options_.step_size != 0 ? group.lr : group.lr * options_.gamma;
  }
  double first_lr(const Group&, size_t i) override { return base_lrs_[i]; }

 private:
  StepOptions options_;
};

class MultiStepRule : public CloneableRule<MultiStepRule> {
 public:
  explicit MultiStepRule(const MultiStepOptions& options) : gamma_(options.gamma) {
    for (const int64_t milestone : options.milestones) ++times_[milestone];
  }
  std::string name() const override { return "MultiStepLR"; }

 protected:
  double next_lr(const Group& group, size_t) override {
    const auto found = times_.find(last_epoch_);
    return found == times_.end() ? group.lr : group.lr * std::pow(gamma_, found->second);
  }
  double first_lr(const Group&, size_t i) override {
    int passed = 0;
    for (const auto& [milestone, times] : times_) passed += milestone <= 0 ? times : 0;
    return base_lrs_[i] * std::pow(gamma_, passed);
  }

 private:
  double gamma_;
  std::map<int64_t, int> times_{};
};

class ConstantRule : public CloneableRule<ConstantRule> {
 public:
  explicit ConstantRule(const ConstantOptions& options) : options_(options) {
    require(options.factor <= 1.0 && options.factor >= 0,
            "Constant multiplicative factor expected to be between 0 and 1.");
  }
  std::string name() const override { return "ConstantLR"; }

 protected:
  double next_lr(const Group& group, size_t) override {
    if (last_epoch_ == 0) return group.lr * options_.factor;
    return last_epoch_ != options_.total_iters ? group.lr : group.lr * (1.0 / options_.factor);
  }
  double first_lr(const Group&, size_t i) override {
    return base_lrs_[i] * (options_.factor + (0 >= options_.total_iters ? 1 - options_.factor : 0));
  }

 private:
  ConstantOptions options_;
};

class ExponentialRule : public CloneableRule<ExponentialRule> {
 public:
  explicit ExponentialRule(const ExponentialOptions& options) : options_(options) {}
  std::string name() const override { return "ExponentialLR"; }

 protected:
  double next_lr(const Group& group, size_t) override { return is_initial_ ? group.lr : group.lr * options_.gamma; }
  double first_lr(const Group&, size_t i) override { return base_lrs_[i]; }

 private:
  ExponentialOptions options_;
};

}  // namespace

Schedule lambda(std::vector<Lambda> factors) {
  return Schedule(std::make_unique<LambdaRule>(std::move(factors)));
}
Schedule lambda(Lambda factor) {
  return lambda(std::vector{std::move(factor)});
}
Schedule multiplicative(std::vector<Lambda> factors) {
  return Schedule(std::make_unique<MultiplicativeRule>(std::move(factors)));
}
Schedule multiplicative(Lambda factor) {
  return multiplicative(std::vector{std::move(factor)});
}
Schedule step(const StepOptions& options) {
  return Schedule(std::make_unique<StepRule>(options));
}
Schedule multi_step(const MultiStepOptions& options) {
  return Schedule(std::make_unique<MultiStepRule>(options));
}
Schedule constant(const ConstantOptions& options) {
  return Schedule(std::make_unique<ConstantRule>(options));
}
Schedule exponential(const ExponentialOptions& options) {
  return Schedule(std::make_unique<ExponentialRule>(options));
}

}  // namespace ddp::schedules
