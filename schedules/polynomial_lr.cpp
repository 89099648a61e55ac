#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

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

Schedule polynomial(const PolynomialOptions& options) {
  return Schedule(std::make_unique<PolynomialLR>(options));
}

}  // namespace ddp::schedules
