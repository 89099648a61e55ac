// Learning-rate schedules, which compute the learning rates (and momenta) of an optimizer's parameter groups. This
// header does not use LibTorch; <ddprun/optim/lr_scheduler.h> applies a schedule to an optimizer. Reference: Python's
// torch.optim.lr_scheduler. The schedules use its recursive formulas, so that composed schedules give the same values.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::schedules {

/// The values of one parameter group that a schedule reads and changes.
struct Group {
  double lr = 0;  ///< the learning rate
  /// The learning rate before any schedule; the first schedule to start on the group sets it.
  std::optional<double> initial_lr{};
  /// SGD's momentum or Adam's first beta; absent when the optimizer has neither.
  std::optional<double> momentum{};
};

/// The groups of an optimizer.
using Groups = std::vector<Group>;

class Scheduler;

/// A schedule and its progress; a copy is independent of the original. The functions below return it. Not safe for
/// concurrent use by several threads.
class Schedule {
 public:
  /// Called by the functions below; programs do not call it.
  explicit Schedule(std::unique_ptr<Scheduler> scheduler);
  Schedule(const Schedule& other);
  Schedule& operator=(const Schedule& other);
  Schedule(Schedule&& other) noexcept;
  Schedule& operator=(Schedule&& other) noexcept;
  ~Schedule();

  /// Sets the values of step 0, as the constructor of Python's scheduler does. Throws std::invalid_argument if the
  /// groups lack a value that the schedule needs.
  void start(Groups& groups);
  /// Advances to the next step. Throws std::invalid_argument if the schedule has no more steps (one_cycle).
  void step(Groups& groups);

  /// Returns the progress as JSON with Python's names. Hyper-parameters are set by the program and are not saved.
  std::string save() const;
  /// Loads the result of save() of a schedule with the same composition, or the state_dict() of Python's scheduler of
  /// that name as JSON. Throws std::invalid_argument, and changes nothing, for any other text.
  void load(const std::string& state);

  /// For use in this library: returns the implementation.
  Scheduler& scheduler() { return *scheduler_; }

 private:
  std::unique_ptr<Scheduler> scheduler_;
};

// All functions below throw std::invalid_argument, with the rank and Python's message, for values out of range. A step
// is one call of step(). The program decides whether that is an iteration or an epoch.

/// A function of the step. A schedule has one for all groups, or one for each group.
using Lambda = std::function<double(int64_t)>;
/// The initial rate times `factor(step)`. Python: LambdaLR.
Schedule lambda(std::vector<Lambda> factors);
/// The same with one function for all groups.
Schedule lambda(Lambda factor);
/// Multiplies the current rate by `factor(step)`, from step 1 on. Python: MultiplicativeLR.
Schedule multiplicative(std::vector<Lambda> factors);
/// The same with one function for all groups.
Schedule multiplicative(Lambda factor);

/// Options of step().
struct StepOptions {
  int64_t step_size;   ///< steps between two changes
  double gamma = 0.1;  ///< the factor
};
/// Multiplies the rate by gamma every step_size steps. Python: StepLR.
Schedule step(const StepOptions& options);

/// Options of multi_step().
struct MultiStepOptions {
  std::vector<int64_t> milestones;  ///< a milestone that is listed twice counts twice
  double gamma = 0.1;               ///< the factor
};
/// Multiplies the rate by gamma at each milestone. Python: MultiStepLR.
Schedule multi_step(const MultiStepOptions& options);

/// Options of constant(), all optional.
struct ConstantOptions {
  double factor = 1.0 / 3;  ///< factor of the initial rate
  int64_t total_iters = 5;  ///< the step from which on the initial rate is used
};
/// The initial rate times factor until step total_iters. Python: ConstantLR.
Schedule constant(const ConstantOptions& options = {});

/// Options of linear(), all optional.
struct LinearOptions {
  double start_factor = 1.0 / 3;  ///< factor of the initial rate at the first step
  double end_factor = 1.0;        ///< factor of the initial rate at the last step
  int64_t total_iters = 5;        ///< number of steps between these two
};
/// Changes the rate linearly from start_factor to end_factor times the initial rate in total_iters steps. Python:
/// LinearLR.
Schedule linear(const LinearOptions& options = {});
/// The warm-up of Goyal et al. 2017: increases the rate in `steps` steps from the rate of one rank (the initial rate /
/// world_size) to the initial rate, which was scaled by world_size.
Schedule linear_warmup(int64_t steps, int world_size);

/// Options of exponential().
struct ExponentialOptions {
  double gamma;  ///< the factor
};
/// Multiplies the rate by gamma in every step. Python: ExponentialLR.
Schedule exponential(const ExponentialOptions& options);

/// Options of polynomial(), all optional.
struct PolynomialOptions {
  int64_t total_iters = 5;  ///< steps until the rate is 0
  double power = 1.0;       ///< the exponent
};
/// The initial rate times (1 - step / total_iters)^power, then 0. Python: PolynomialLR.
Schedule polynomial(const PolynomialOptions& options = {});

/// Options of cosine().
struct CosineOptions {
  int64_t t_max;       ///< steps from the initial rate to eta_min
  double eta_min = 0;  ///< the minimum rate
};
/// Follows half a cosine from the initial rate to eta_min in t_max steps, and back. Python: CosineAnnealingLR.
Schedule cosine(const CosineOptions& options);

/// Options of cosine_warm_restarts().
struct CosineWarmRestartsOptions {
  int64_t t_0;         ///< steps until the first restart
  int64_t t_mult = 1;  ///< the factor by which each period is longer than the previous one
  double eta_min = 0;  ///< the minimum rate
};
/// Follows half cosines of t_0, t_0 t_mult, … steps, each from the initial rate. Python: CosineAnnealingWarmRestarts.
Schedule cosine_warm_restarts(const CosineWarmRestartsOptions& options);

/// The shape of a transition from one rate to another: half a cosine, or a line.
enum class Anneal { kCosine, kLinear };

/// Options of one_cycle().
struct OneCycleOptions {
  std::vector<double> max_lr;                  ///< one value for all groups, or one for each
  int64_t total_steps;                         ///< epochs times steps per epoch
  double pct_start = 0.3;                      ///< fraction of the steps, 0 to 1, in which the rate rises
  Anneal anneal_strategy = Anneal::kCosine;    ///< how the rate rises and falls
  bool cycle_momentum = true;                  ///< also change the momentum, in the opposite direction
  std::vector<double> base_momentum = {0.85};  ///< as max_lr
  std::vector<double> max_momentum = {0.95};   ///< as max_lr
  double div_factor = 25.0;                    ///< max_lr divided by this is the first rate
  double final_div_factor = 1e4;               ///< the first rate divided by this is the last one
  bool three_phase = false;  ///< fall to the first rate in as many steps as the rise took, then to the last rate
};
/// Smith's 1cycle policy: the rate rises to max_lr and falls below its start; the momentum moves in the opposite
/// direction. Python: OneCycleLR.
Schedule one_cycle(const OneCycleOptions& options);

/// How the amplitude of cyclic() changes: it is constant, is halved in each cycle, or is multiplied by gamma in each
/// step.
enum class CyclicMode { kTriangular, kTriangular2, kExpRange };
/// The argument of CyclicOptions::scale_fn: the number of the cycle, or the step.
enum class CyclicScale { kCycle, kIterations };

/// Options of cyclic().
struct CyclicOptions {
  std::vector<double> base_lr;                ///< one value for all groups, or one for each
  std::vector<double> max_lr;                 ///< as base_lr
  int64_t step_size_up = 2000;                ///< steps from base_lr to max_lr
  std::optional<int64_t> step_size_down{};    ///< default: step_size_up
  CyclicMode mode = CyclicMode::kTriangular;  ///< how the amplitude changes
  double gamma = 1.0;                         ///< used by kExpRange
  /// Replaces the mode: returns the factor of the amplitude for the number of the cycle, which starts at 1, or for the
  /// step.
  std::function<double(double)> scale_fn{};
  CyclicScale scale_mode = CyclicScale::kCycle;  ///< the argument of scale_fn
  bool cycle_momentum = true;                    ///< also change the momentum, in the opposite direction
  std::vector<double> base_momentum = {0.8};     ///< as base_lr
  std::vector<double> max_momentum = {0.9};      ///< as base_lr
};
/// Smith's cyclical rates: the rate rises from base_lr to max_lr and falls again in each cycle; the momentum moves in
/// the opposite direction. The amplitude is constant, is halved in each cycle (kTriangular2), or is multiplied by
/// gamma^step (kExpRange). Python: CyclicLR.
Schedule cyclic(const CyclicOptions& options);

/// Options of swa().
struct SwaOptions {
  std::vector<double> swa_lr;                ///< one value for all groups, or one for each
  int64_t anneal_epochs = 10;                ///< number of calls of step()
  Anneal anneal_strategy = Anneal::kCosine;  ///< how the rate changes to swa_lr
};
/// Changes the rate from its current value to swa_lr in anneal_epochs steps, and then keeps it constant. It is used in
/// the part of a training in which weights are averaged (<ddprun/optim/averaged_model.h>), usually after another
/// schedule in sequential(). Python: SWALR.
Schedule swa(const SwaOptions& options);

/// Uses the first schedule until milestone 0, the second until milestone 1, and so on. Each schedule starts at its
/// milestone. Only the first schedule may be a composed one. Python: SequentialLR.
Schedule sequential(std::vector<Schedule> schedules, std::vector<int64_t> milestones);

/// Applies all schedules in each step, one after the other. Python: ChainedScheduler.
Schedule chained(std::vector<Schedule> schedules);

/// Whether a lower or a higher metric is better.
enum class PlateauMode { kMin, kMax };
/// How much better a metric must be to count as an improvement: relative to the best one, or by a difference.
enum class ThresholdMode { kRelative, kAbsolute };

/// Options of Plateau, all optional; the defaults are Python's.
struct PlateauOptions {
  PlateauMode mode = PlateauMode::kMin;                     ///< whether a lower or a higher metric is better
  double factor = 0.1;                                      ///< factor of the rate, below 1
  int64_t patience = 10;                                    ///< calls without improvement before the rate is lowered
  double threshold = 1e-4;                                  ///< how much better a metric must be
  ThresholdMode threshold_mode = ThresholdMode::kRelative;  ///< whether `threshold` is relative to the best metric
  int64_t cooldown = 0;              ///< calls after a reduction in which bad metrics do not count
  std::vector<double> min_lr = {0};  ///< one value for all groups, or one for each
  double eps = 1e-8;                 ///< a reduction of the rate by less than this is not made
};

/// Reduces learning rates when a metric has stopped improving, like Python's ReduceLROnPlateau.
/// optim::ReduceLROnPlateau applies it to an optimizer over all ranks.
class Plateau {
 public:
  /// Throws std::invalid_argument with Python's message if the factor is not below 1.
  explicit Plateau(PlateauOptions options = {});

  /// Processes the metric of one more epoch. Reduces the groups' rates if there was no improvement in more than
  /// `patience` epochs. NaN does not count as an improvement. Throws std::invalid_argument if min_lr does not match the
  /// number of groups.
  void step(double metric, Groups& groups);

  /// Returns the progress as JSON, as Schedule::save() does.
  std::string save() const;
  /// Loads the result of save(), as Schedule::load() does.
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
