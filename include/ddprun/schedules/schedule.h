// Learning-rate schedules as arithmetic: what a schedule does to the learning rates (and momenta) of an optimizer's
// parameter groups. No LibTorch here; <ddprun/optim/lr_scheduler.h> applies one to an optimizer. Reference:
// Python's torch.optim.lr_scheduler, whose recursive forms these are, so that schedules compose with the same values.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::schedules {

/// What a schedule reads and changes of one parameter group.
struct Group {
  double lr = 0;
  /// The learning rate before any schedule; the first schedule to start on the group sets it.
  std::optional<double> initial_lr{};
  /// SGD's momentum or Adam's first beta; absent when the optimizer has neither.
  std::optional<double> momentum{};
};

using Groups = std::vector<Group>;

class Scheduler;

/// A schedule and how far it has come; a copy goes on independently. Made by the functions below. Not for use by
/// several threads at once.
class Schedule {
 public:
  explicit Schedule(std::unique_ptr<Scheduler> scheduler);
  Schedule(const Schedule& other);
  Schedule& operator=(const Schedule& other);
  Schedule(Schedule&& other) noexcept;
  Schedule& operator=(Schedule&& other) noexcept;
  ~Schedule();

  /// Sets the values of step 0, as constructing Python's scheduler does. Throws std::invalid_argument when the groups
  /// lack what the schedule needs.
  void start(Groups& groups);
  /// Goes on to the next step. Throws std::invalid_argument when the schedule has no more steps (one_cycle).
  void step(Groups& groups);

  /// Progress as JSON under Python's names; hyper-parameters are the program's and are not saved.
  std::string save() const;
  /// Takes over what save() of an equally composed schedule has returned, or the state_dict() of Python's scheduler of
  /// that name as JSON. Throws std::invalid_argument for anything else, and then changes nothing.
  void load(const std::string& state);

  Scheduler& scheduler() { return *scheduler_; }

 private:
  std::unique_ptr<Scheduler> scheduler_;
};

// All of these throw std::invalid_argument with Python's message, after the rank, for values out of range. Steps are
// calls of step(): iterations or epochs, as the program calls it.

/// One function of the step for all groups, or one for each.
using Lambda = std::function<double(int64_t)>;
/// The initial rate times `factor(step)`. Python: LambdaLR.
Schedule lambda(std::vector<Lambda> factors);
Schedule lambda(Lambda factor);
/// The current rate times `factor(step)`, from step 1 on. Python: MultiplicativeLR.
Schedule multiplicative(std::vector<Lambda> factors);
Schedule multiplicative(Lambda factor);

struct StepOptions {
  int64_t step_size;
  double gamma = 0.1;
};
/// Times gamma every step_size steps. Python: StepLR.
Schedule step(const StepOptions& options);

struct MultiStepOptions {
  std::vector<int64_t> milestones;  ///< one that is listed twice counts twice
  double gamma = 0.1;
};
/// Times gamma at each milestone. Python: MultiStepLR.
Schedule multi_step(const MultiStepOptions& options);

struct ConstantOptions {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};
/// The initial rate times factor until step total_iters. Python: ConstantLR.
Schedule constant(const ConstantOptions& options = {});

struct LinearOptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1.0;
  int64_t total_iters = 5;
};
/// From start_factor to end_factor times the initial rate in total_iters steps. Python: LinearLR.
Schedule linear(const LinearOptions& options = {});
/// The warm-up of Goyal et al. 2017: from the rate of one rank (the initial rate / world_size) to the initial rate,
/// which was scaled by world_size, in `steps` steps.
Schedule linear_warmup(int64_t steps, int world_size);

struct ExponentialOptions {
  double gamma;
};
/// Times gamma every step. Python: ExponentialLR.
Schedule exponential(const ExponentialOptions& options);

struct PolynomialOptions {
  int64_t total_iters = 5;
  double power = 1.0;
};
/// The initial rate times (1 - step / total_iters)^power, then 0. Python: PolynomialLR.
Schedule polynomial(const PolynomialOptions& options = {});

struct CosineOptions {
  int64_t t_max;
  double eta_min = 0;
};
/// Half a cosine from the initial rate to eta_min in t_max steps, and back. Python: CosineAnnealingLR.
Schedule cosine(const CosineOptions& options);

struct CosineWarmRestartsOptions {
  int64_t t_0;
  int64_t t_mult = 1;
  double eta_min = 0;
};
/// Half cosines of t_0, t_0 t_mult, … steps, each from the initial rate. Python: CosineAnnealingWarmRestarts.
Schedule cosine_warm_restarts(const CosineWarmRestartsOptions& options);

enum class Anneal { kCosine, kLinear };

struct OneCycleOptions {
  std::vector<double> max_lr;  ///< one for all groups, or one for each
  int64_t total_steps;         ///< epochs times steps per epoch
  double pct_start = 0.3;
  Anneal anneal_strategy = Anneal::kCosine;
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.85};  ///< as max_lr
  std::vector<double> max_momentum = {0.95};   ///< as max_lr
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  bool three_phase = false;
};
/// Smith's 1cycle policy: up to max_lr and down below the start, momentum the other way round. Python: OneCycleLR.
Schedule one_cycle(const OneCycleOptions& options);

enum class CyclicMode { kTriangular, kTriangular2, kExpRange };
enum class CyclicScale { kCycle, kIterations };

struct CyclicOptions {
  std::vector<double> base_lr;  ///< one for all groups, or one for each
  std::vector<double> max_lr;   ///< as base_lr
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down{};  ///< default: step_size_up
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1.0;  ///< of kExpRange
  /// Instead of the mode: what the amplitude is multiplied by, of the cycle's number from 1 on or of the step.
  std::function<double(double)> scale_fn{};
  CyclicScale scale_mode = CyclicScale::kCycle;
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.8};  ///< as base_lr
  std::vector<double> max_momentum = {0.9};   ///< as base_lr
};
/// Smith's cyclical rates: up from base_lr to max_lr and back down, again and again, momentum the other way round. The
/// amplitude stays, halves with every cycle (kTriangular2) or shrinks by gamma^step (kExpRange). Python: CyclicLR.
Schedule cyclic(const CyclicOptions& options);

struct SwaOptions {
  std::vector<double> swa_lr;  ///< one for all groups, or one for each
  int64_t anneal_epochs = 10;  ///< in calls of step()
  Anneal anneal_strategy = Anneal::kCosine;
};
/// From the current rate to swa_lr in anneal_epochs steps, where it stays: for the part of a training whose weights
/// are averaged (<ddprun/optim/averaged_model.h>), usually behind another schedule in sequential(). Python: SWALR.
Schedule swa(const SwaOptions& options);

/// The first schedule until milestone 0, the second until milestone 1, …; each starts anew at its milestone. Composed
/// ones may only come first. Python: SequentialLR.
Schedule sequential(std::vector<Schedule> schedules, std::vector<int64_t> milestones);

/// All at once, each on top of the ones before. Python: ChainedScheduler.
Schedule chained(std::vector<Schedule> schedules);

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
