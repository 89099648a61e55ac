#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

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

}  // namespace

Schedule linear(const LinearOptions& options) {
  return Schedule(std::make_unique<LinearLR>(options));
}
Schedule linear_warmup(int64_t steps, int world_size) {
  require(world_size >= 1, "linear_warmup: the world size must be at least 1, got " + std::to_string(world_size));
  return linear({.start_factor = 1.0 / world_size, .end_factor = 1.0, .total_iters = steps});
}

}  // namespace ddp::schedules
