// Lowers the learning rates on all ranks alike when a metric has stopped improving.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/schedules/plateau.h>

namespace torch::optim {
class Optimizer;
}

namespace ddp::optim {

/// Python's ReduceLROnPlateau. With a process group all ranks decide by the mean of their metrics, so that none goes
/// its own way; without one, each by its own.
class ReduceLROnPlateau {
 public:
  /// Borrows `optimizer`. Throws std::invalid_argument with Python's message for options out of range.
  explicit ReduceLROnPlateau(torch::optim::Optimizer& optimizer, schedules::PlateauOptions options = {});
  ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const GroupHandle& group,
                    schedules::PlateauOptions options = {});

  /// To be called once per validation, by every rank of the group, with this rank's value. Throws as all_reduce().
  void step(double metric);

  std::vector<double> get_last_lr() const;

  /// As LrScheduler's.
  std::string save() const;
  void load(const std::string& state) { plateau_.load(state); }

 private:
  torch::optim::Optimizer& optimizer_;
  std::optional<GroupHandle> group_{};
  schedules::Plateau plateau_;
};

}  // namespace ddp::optim
