// The implementation of schedules: one class for each class of torch.optim.lr_scheduler, with the same name and the
// same recursive formula. A Schedule holds one of these objects.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/schedules/schedule.h>

namespace ddp::schedules {

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::unique_ptr<Scheduler> clone() const = 0;
  virtual std::string name() const = 0;  ///< the name of Python's class

  virtual void start(Groups& groups) = 0;         ///< the constructor of Python's class
  virtual void initial_step(Groups& groups) = 0;  ///< the last call in that constructor
  virtual void step(Groups& groups) = 0;
  virtual void restart(Groups& groups) = 0;  ///< returns to step 0, when a sequence reaches this scheduler
  virtual void undo() = 0;                   ///< reverts the counting of initial_step()
  virtual bool is_composed() const { return false; }

  virtual void save(nlohmann::json& state) const = 0;
  /// `sequences` is the number of sequences that contain this scheduler; each of them has called undo() once. Throws
  /// nlohmann::json::exception or std::invalid_argument for a state that does not fit. The object may then be partly
  /// loaded.
  virtual void load(const nlohmann::json& state, int64_t sequences) = 0;

 protected:
  Scheduler() = default;
  Scheduler(const Scheduler&) = default;
  Scheduler& operator=(const Scheduler&) = delete;
};

/// A scheduler that computes each group's next rate from its current one, like Python's class LRScheduler.
class LRScheduler : public Scheduler {
 public:
  void start(Groups& groups) override;
  void initial_step(Groups& groups) override;
  void step(Groups& groups) override;
  void restart(Groups& groups) override;
  void undo() override { --last_epoch_; }
  void save(nlohmann::json& state) const override;
  void load(const nlohmann::json& state, int64_t sequences) override;

 protected:
  /// Returns the rate of group `i` at step last_epoch_; `group.lr` is the rate of the previous step.
  virtual double get_lr(const Group& group, size_t i) = 0;
  /// Returns the rate at step 0, independent of the current one: Python's _get_closed_form_lr(), or get_lr() if
  /// Python's class has none.
  virtual double closed_form_lr(const Group& group, size_t i) { return get_lr(group, i); }
  /// Changes values other than the rates.
  virtual void adjust(Groups&) {}

  /// Throws std::invalid_argument unless there are as many groups as at the start.
  void require_same_number(const Groups& groups) const;
  /// Does what step() does, without its check and without counting _step_count.
  void advance(Groups& groups);

  int64_t last_epoch_ = -1;
  int64_t step_count_ = 0;
  bool is_initial_ = false;
  std::vector<double> base_lrs_{};
};

/// A scheduler `Self` that can be copied.
template <typename Self, typename Base = LRScheduler>
class Cloneable : public Base {
 public:
  using Base::Base;
  std::unique_ptr<Scheduler> clone() const override { return std::make_unique<Self>(static_cast<const Self&>(*this)); }
};

/// Throws std::invalid_argument with the rank and `message` unless `valid`.
void require(bool valid, const std::string& message);

/// Returns base^exponent. Throws std::invalid_argument, like Python's **, if finite numbers have no finite power.
double power(double base, double exponent);

/// Returns `values` for `count` groups; a single value is used for all groups. Throws std::invalid_argument for any
/// other number of values.
std::vector<double> per_group(const std::vector<double>& values, size_t count, const char* name);

}  // namespace ddp::schedules
