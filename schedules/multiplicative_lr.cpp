#include <utility>

#include "schedules/lr_lambdas.h"
#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

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

Schedule multiplicative(std::vector<Lambda> factors) {
  return Schedule(std::make_unique<MultiplicativeLR>(std::move(factors)));
}
Schedule multiplicative(Lambda factor) {
  return multiplicative(std::vector{std::move(factor)});
}

}  // namespace ddp::schedules
