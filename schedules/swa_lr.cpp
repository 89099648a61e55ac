// The learning rate of stochastic weight averaging (Izmailov et al. 2018), which is annealed to a constant.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

// Like Python's class, it counts with _step_count, which the restart of a sequence does not change.
class SWALR : public Cloneable<SWALR> {
 public:
  explicit SWALR(const SwaOptions& options) : options_(options) {
    require(options.anneal_epochs >= 0,
            "anneal_epochs must be equal or greater than 0, got " + std::to_string(options.anneal_epochs));
  }
  std::string name() const override { return "SWALR"; }

  void start(Groups& groups) override {
    swa_lrs_ = per_group(options_.swa_lr, groups.size(), "swa_lr");
    LRScheduler::start(groups);
  }

  void load(const nlohmann::json& state, int64_t sequences) override {
    LRScheduler::load(state, sequences);
    swa_lrs_ = base_lrs_.empty() ? std::vector<double>{} : per_group(options_.swa_lr, base_lrs_.size(), "swa_lr");
  }

  void save(nlohmann::json& state) const override {
    LRScheduler::save(state);
    // Python's class stores these values in the optimizer's groups, so a Python program needs them to continue the
    // training.
    state["groups"] = nlohmann::json::array();
    for (const double swa_lr : swa_lrs_) state["groups"].push_back({{"swa_lr", swa_lr}});
  }

 protected:
  double get_lr(const Group& group, size_t i) override {
    const auto step = std::max<int64_t>(step_count_ - 1, options_.anneal_epochs == 0 ? 1 : 0);
    const double before = share(step - 1);
    const double initial = before == 1 ? swa_lrs_[i] : (group.lr - before * swa_lrs_[i]) / (1 - before);
    const double now = share(step);
    return swa_lrs_[i] * now + initial * (1 - now);
  }

 private:
  // Returns how much of the annealing is complete at a step, from 0 to 1.
  double share(int64_t step) const {
    const auto epochs = static_cast<double>(std::max<int64_t>(1, options_.anneal_epochs));
    const double passed = std::clamp(static_cast<double>(step) / epochs, 0.0, 1.0);
    return options_.anneal_strategy == Anneal::kLinear ? passed : (1 - std::cos(std::numbers::pi * passed)) / 2;
  }

  SwaOptions options_;
  std::vector<double> swa_lrs_{};
};

}  // namespace

Schedule swa(const SwaOptions& options) {
  return Schedule(std::make_unique<SWALR>(options));
}

}  // namespace ddp::schedules
