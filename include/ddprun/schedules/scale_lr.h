// The learning rate for a batch that is `world size` times as large. Does not use LibTorch.
#pragma once

namespace ddp {

/// How scale_lr() grows the rate: with the number of ranks (Goyal et al. 2017), with its root (Krizhevsky 2014; for
/// Adam and similar optimizers), or by a factor that the program gives.
class LrScaling {
 public:
  /// Times the number of ranks.
  static LrScaling linear() { return LrScaling(Kind::kLinear, 1); }
  /// Times the root of the number of ranks.
  static LrScaling sqrt() { return LrScaling(Kind::kSqrt, 1); }
  /// Times `factor`, whatever the number of ranks.
  static LrScaling factor(double factor) { return LrScaling(Kind::kFactor, factor); }

  /// What the rate is multiplied by for `world_size` ranks. Throws std::invalid_argument for fewer than one, and for a
  /// factor that is not finite or below 0.
  double multiplier(int world_size) const;

 private:
  enum class Kind { kLinear, kSqrt, kFactor };
  LrScaling(Kind kind, double factor) : kind_(kind), factor_(factor) {}

  Kind kind_;
  double factor_;
};

/// Returns the learning rate for `world_size` batches per step, where `lr` is the rate for one rank's batch. Throws
/// std::invalid_argument for a rate that is not finite or below 0, and as LrScaling::multiplier().
double scale_lr(double lr, int world_size, const LrScaling& scaling = LrScaling::linear());

}  // namespace ddp
