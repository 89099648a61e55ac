// Lower learning rates when a metric has stopped improving. No LibTorch here;
// <ddprun/optim/reduce_lr_on_plateau.h> applies it to an optimizer over all ranks. Reference: Python's
// ReduceLROnPlateau.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ddprun/schedules/schedule.h>

namespace ddp::schedules {

enum class PlateauMode { kMin, kMax };              ///< what is better: a lower or a higher metric
enum class ThresholdMode { kRelative, kAbsolute };  ///< how much better it must be

struct PlateauOptions {
  PlateauMode mode = PlateauMode::kMin;
  double factor = 0.1;    ///< below 1
  int64_t patience = 10;  ///< calls without improvement that are put up with
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;              ///< calls after a reduction during which bad ones don't count
  std::vector<double> min_lr = {0};  ///< one for all groups, or one for each
  double eps = 1e-8;                 ///< smaller reductions are not made
};

class Plateau {
 public:
  /// Throws std::invalid_argument with Python's message when the factor is not below 1.
  explicit Plateau(PlateauOptions options = {});

  /// Takes the metric of one more epoch; lowers the groups' rates if it is one too many without improvement. NaN is no
  /// improvement. Throws std::invalid_argument when min_lr does not fit the number of groups.
  void step(double metric, Groups& groups);

  /// As Schedule::save() and load().
  std::string save() const;
  void load(const std::string& state);

 private:
  struct State {
    int64_t last_epoch = 0;
    double best = 0;
    int64_t cooldown_counter = 0;
    int64_t num_bad_epochs = 0;
  };

  bool is_better(double metric) const;

  PlateauOptions options_;
  State state_{};
};

}  // namespace ddp::schedules
