#include <utility>

#include "schedules/lr_lambdas.h"
#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

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

}  // namespace

Schedule lambda(std::vector<Lambda> factors) {
  return Schedule(std::make_unique<LambdaLR>(std::move(factors)));
}
Schedule lambda(Lambda factor) {
  return lambda(std::vector{std::move(factor)});
}

}  // namespace ddp::schedules
