// Reports to ddprun what this rank is doing, for its hang report and for `ddprun status`. The library reports its own
// operations. Programs that train without DistributedDataParallel report theirs by these functions. Does not use
// LibTorch.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp {

/// Functions that report what a rank is doing and which step it has reached: ddp::progress::step(),
/// ddp::progress::PhaseScope. This is a class, not a namespace, so that the function ddp::progress(loader)
/// (ddprun/monitor/progress.h) can have the same name.
struct progress {
  /// The phases of a rank. The number is written into the progress page that ddprun reads.
  enum class Phase : std::uint8_t {
    kStart = 0,       ///< before the first other phase
    kOther = 1,       ///< between two other phases
    kData = 2,        ///< waits for, or makes, the next batch
    kForward = 3,     ///< in the model's forward, or between it and backward
    kBackward = 4,    ///< in backward, while its collectives run
    kOptimizer = 5,   ///< in an optimizer's step
    kCheckpoint = 6,  ///< saves or loads a checkpoint
    kEvaluation = 7,  ///< evaluates a model
    kClosing = 8,     ///< closes the job's process group
    kUser = 9,        ///< a phase that the program has named
  };

  /// The phase's name, such as "forward"; "?" for another number.
  static std::string_view name_of(Phase phase) noexcept;

  /// While this object exists, this rank is in `phase`; afterwards it is in the previous phase again. A timeline
  /// (ddprun/base/timeline.h) shows the phase too. A name that the program gives is cut to 31 bytes; after 24 different
  /// names, further ones are shown as "other phase". It costs about 50 ns and no system call. Any thread may use it,
  /// but a rank has only one phase at a time.
  class PhaseScope {
   public:
    /// Begins `phase`.
    explicit PhaseScope(Phase phase) noexcept;
    /// Begins a phase that the program names.
    explicit PhaseScope(std::string_view name) noexcept;
    ~PhaseScope();
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

   private:
    unsigned outer_;
    std::uint64_t event_;  // in the timeline
  };

  /// Reports that a training step of this rank has ended. DistributedDataParallel counts a step at the end of each
  /// backward that reduces gradients. After the first call of this function, only calls of this function count.
  static void step() noexcept;

  /// Reports a number that `ddprun status` shows, such as ("loss", 0.3). The last value of a name is kept. There can be
  /// at most 8 names of up to 31 bytes.
  static void value(std::string_view name, double number) noexcept;
};

}  // namespace ddp
