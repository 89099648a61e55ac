#include <map>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

class MultiStepLR : public Cloneable<MultiStepLR> {
 public:
  explicit MultiStepLR(const MultiStepOptions& options) : gamma_(options.gamma) {
    for (const int64_t milestone : options.milestones) ++times_[milestone];
  }
  std::string name() const override { return "MultiStepLR"; }

 protected:
  double get_lr(const Group& group, size_t) override {
    const auto found = times_.find(last_epoch_);
    return found == times_.end() ? group.lr : group.lr * power(gamma_, found->second);
  }
  double closed_form_lr(const Group&, size_t i) override {
    int passed = 0;
    for (const auto& [milestone, times] : times_) passed += milestone <= 0 ? times : 0;
    return base_lrs_[i] * power(gamma_, passed);
  }

 private:
  double gamma_;
  std::map<int64_t, int> times_{};
};

}  // namespace

Schedule multi_step(const MultiStepOptions& options) {
  return Schedule(std::make_unique<MultiStepLR>(options));
}

}  // namespace ddp::schedules
