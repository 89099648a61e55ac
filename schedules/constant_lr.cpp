#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

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
    require(options_.factor != 0, "ConstantLR: there is no way back from a factor of 0, which total_iters=" +
                                      std::to_string(options_.total_iters) + " asks for (Python divides by zero here)");
    return group.lr * (1.0 / options_.factor);
  }
  double closed_form_lr(const Group&, size_t i) override {
    return base_lrs_[i] * (options_.factor + (0 >= options_.total_iters ? 1 - options_.factor : 0));
  }

 private:
  ConstantOptions options_;
};

}  // namespace

Schedule constant(const ConstantOptions& options) {
  return Schedule(std::make_unique<ConstantLR>(options));
}

}  // namespace ddp::schedules
