#include <cmath>
#include <numbers>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

class CosineAnnealingLR : public Cloneable<CosineAnnealingLR> {
 public:
  explicit CosineAnnealingLR(const CosineOptions& options) : options_(options) {
    require(options.t_max >= 1, "Expected positive integer T_max, but got " + std::to_string(options.t_max));
  }
  std::string name() const override { return "CosineAnnealingLR"; }

 protected:
  double get_lr(const Group& group, size_t i) override {
    if (is_initial_) return group.lr;
    const auto t_max = static_cast<double>(options_.t_max);
    const double before = 1 + std::cos(std::numbers::pi * static_cast<double>(last_epoch_ - 1) / t_max);
    // At its lowest point the ratio below is 0 / 0: from there the rate rises by an addition. With a very long half
    // that point is several steps wide, in which Python divides by 0.
    if (was_lowest() || before == 0) {
      return group.lr + (base_lrs_[i] - options_.eta_min) * (1 - std::cos(std::numbers::pi / t_max)) / 2;
    }
    return (1 + std::cos(std::numbers::pi * static_cast<double>(last_epoch_) / t_max)) / before *
               (group.lr - options_.eta_min) +
           options_.eta_min;
  }
  double closed_form_lr(const Group&, size_t i) override {
    return options_.eta_min + (base_lrs_[i] - options_.eta_min) * (1 + std::cos(0.0)) / 2;
  }

 private:
  // Whether the step before was an odd multiple of t_max.
  bool was_lowest() const {
    const int64_t before = last_epoch_ - 1;
    return before % options_.t_max == 0 && before / options_.t_max % 2 != 0;
  }

  CosineOptions options_;
};

}  // namespace

Schedule cosine(const CosineOptions& options) {
  return Schedule(std::make_unique<CosineAnnealingLR>(options));
}

}  // namespace ddp::schedules
