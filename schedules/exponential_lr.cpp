#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

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

}  // namespace

Schedule exponential(const ExponentialOptions& options) {
  return Schedule(std::make_unique<ExponentialLR>(options));
}

}  // namespace ddp::schedules
