// Reports to ddprun what this rank is doing, for its hang report and for `ddprun status`. This library reports what it
// does itself; programs that train without DistributedDataParallel report it here. No LibTorch here.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp {

/// What a rank is doing, and how far it is: ddp::progress::step(), ddp::progress::PhaseScope. A class and no namespace,
/// so that a loop with a progress bar, ddp::progress(loader) (ddprun/monitor/progress.h), can have the same name.
struct progress {
  /// What a rank can be doing. The number is written into the page that ddprun reads.
  enum class Phase : std::uint8_t {
    kStart = 0,       ///< before the first of the others
    kOther = 1,       ///< between two of the others
    kData = 2,        ///< waits for, or makes, the next batch
    kForward = 3,     ///< in the model's forward, or between it and backward
    kBackward = 4,    ///< in backward; its collectives are under way meanwhile
    kOptimizer = 5,   ///< in an optimizer's step
    kCheckpoint = 6,  ///< saves or loads a checkpoint
    kEvaluation = 7,  ///< evaluates a model
    kClosing = 8,     ///< closes the job's process group
    kUser = 9,        ///< a phase that the program has named
  };

  /// The phase's name, such as "forward"; "?" for another number.
  static std::string_view name_of(Phase phase) noexcept;

  /// While it lives, this rank is in `phase`, then in the previous one again. A timeline (ddprun/base/timeline.h) shows
  /// it, too. The name of one of the program's own is kept up to 31 bytes; beyond 24 names they are all "other phase".
  /// Costs about 50 ns, no system call, and may be used in any thread, though a rank has one phase at a time.
  class PhaseScope {
   public:
    /// Begins `phase`.
    explicit PhaseScope(Phase phase) noexcept;
    /// Begins a phase of the program's own.
    explicit PhaseScope(std::string_view name) noexcept;
    ~PhaseScope();
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

   private:
    unsigned outer_;
    std::uint64_t event_;  // in the timeline
  };

  /// A training step of this rank has ended. DistributedDataParallel counts a step at the end of each backward that
  /// reduces gradients; from the first call of this function on only its calls count.
  static void step() noexcept;

  /// A number for `ddprun status`, such as ("loss", 0.3): the last value counts. At most 8 names of up to 31 bytes.
  static void value(std::string_view name, double number) noexcept;
};

}  // namespace ddp
