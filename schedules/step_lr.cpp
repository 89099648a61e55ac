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

}  // namespace

Schedule step(const StepOptions& options) {
  return Schedule(std::make_unique<StepLR>(options));
}

}  // namespace ddp::schedules
