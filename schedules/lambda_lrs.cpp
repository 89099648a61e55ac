#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

/// Holds one function per group; a single function is used for all groups.
class LrLambdas {
 public:
  explicit LrLambdas(std::vector<Lambda> factors) : factors_(std::move(factors)) {
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

class LambdaLR : public Cloneable<LambdaLR> {
 public:
  explicit LambdaLR(std::vector<Lambda> factors) : factors_(std::move(factors)) {}
  std::string name() const override { return "LambdaLR"; }
  void start(Groups& groups) override {
    factors_.check(groups.size());
    LRScheduler::start(groups);
  }

 protected:
  double get_lr(const Group&, size_t i) override { return base_lrs_[i] * factors_(i, last_epoch_); }

 private:
  LrLambdas factors_;
};

class MultiplicativeLR : public Cloneable<MultiplicativeLR> {
 public:
  explicit MultiplicativeLR(std::vector<Lambda> factors) : factors_(std::move(factors)) {}
  std::string name() const override { return "MultiplicativeLR"; }
  void start(Groups& groups) override {
    factors_.check(groups.size());
    LRScheduler::start(groups);
  }

 protected:
  double get_lr(const Group& group, size_t i) override {
    return is_initial_ ? group.lr : group.lr * factors_(i, last_epoch_);
  }

 private:
  LrLambdas factors_;
};

}  // namespace

Schedule lambda(std::vector<Lambda> factors) {
  return Schedule(std::make_unique<LambdaLR>(std::move(factors)));
}
Schedule lambda(Lambda factor) {
  return lambda(std::vector{std::move(factor)});
}

Schedule multiplicative(std::vector<Lambda> factors) {
  return Schedule(std::make_unique<MultiplicativeLR>(std::move(factors)));
}
Schedule multiplicative(Lambda factor) {
  return multiplicative(std::vector{std::move(factor)});
}

}  // namespace ddp::schedules
