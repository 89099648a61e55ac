// Applies a schedule to an optimizer, as Python's torch.optim.lr_scheduler classes do. Also reduces the learning rates,
// equally on all ranks, when a metric has stopped improving.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/schedules/schedule.h>

namespace torch::optim {
class Optimizer;
}

namespace ddp::optim {

/// Settings of an LrScheduler, all optional.
struct LrSchedulerOptions {
  /// The schedule makes a step at every `interval`-th call of step(): with the number of iterations of an epoch, a
  /// schedule in epochs can be stepped with every iteration.
  int64_t interval = 1;
};

/// Sets the learning rates (and momenta, for one_cycle) of an optimizer's groups. Every rank constructs its own and
/// calls step() equally often; it does not communicate. Works with any torch::optim::Optimizer whose options have a
/// learning rate.
class LrScheduler {
 public:
  /// Refers to `optimizer`, which must outlive it, and sets its rates to those of the schedule's step 0. Throws
  /// std::invalid_argument when its groups lack an option that the schedule needs.
  LrScheduler(torch::optim::Optimizer& optimizer, schedules::Schedule schedule, const LrSchedulerOptions& options = {});

  /// Makes the schedule's next step, starting from the current rates of the groups. Call it after the optimizer's step.
  /// Throws std::invalid_argument when the schedule has no more steps, and then changes nothing.
  void step();

  /// The learning rate of each group.
  std::vector<double> get_last_lr() const;

  /// Progress, rates and initial rates as JSON.
  std::string save() const;
  /// Loads the result of save() of an equal schedule, or the state_dict() of Python's scheduler as JSON, and sets the
  /// optimizer's rates to the saved ones. Throws std::invalid_argument, and changes nothing, if the state does not
  /// match.
  void load(const std::string& state);

 private:
  torch::optim::Optimizer& optimizer_;
  schedules::Schedule schedule_;
  LrSchedulerOptions options_;
  schedules::Groups groups_{};
  int64_t calls_ = 0;
};

/// Python's ReduceLROnPlateau. With a process group, the ranks use the mean of their metrics, so that all ranks have
/// the same learning rates. Without a group, each rank uses its own metric.
class ReduceLROnPlateau {
 public:
  /// Refers to `optimizer`, which must outlive it. Throws std::invalid_argument with Python's message for options out
  /// of range.
  explicit ReduceLROnPlateau(torch::optim::Optimizer& optimizer, schedules::PlateauOptions options = {});
  /// The same for a job of several ranks. Every rank constructs one.
  ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const GroupHandle& group,
                    schedules::PlateauOptions options = {});

  /// Must be called once per validation by every rank of the group, with this rank's value. Throws as all_reduce()
  /// does.
  void step(double metric);

  /// The learning rate of each group.
  std::vector<double> get_last_lr() const;

  /// Returns the progress as JSON, as LrScheduler::save() does.
  std::string save() const;
  /// Loads the result of save(), as LrScheduler::load() does.
  void load(const std::string& state) { plateau_.load(state); }

 private:
  torch::optim::Optimizer& optimizer_;
  std::optional<GroupHandle> group_{};
  schedules::Plateau plateau_;
};

}  // namespace ddp::optim
