// Scales the learning rate for a batch that is `world size` times as large. Does not use LibTorch.
#pragma once

namespace ddp {

/// How scale_lr() scales the rate: by the number of ranks (Goyal et al. 2017), by its square root (Krizhevsky 2014; for
/// Adam and similar optimizers), or by a factor that the program passes.
class LrScaling {
 public:
  /// Multiplies the rate by the number of ranks.
  static LrScaling linear() { return LrScaling(Kind::kLinear, 1); }
  /// Multiplies the rate by the square root of the number of ranks.
  static LrScaling sqrt() { return LrScaling(Kind::kSqrt, 1); }
  /// Multiplies the rate by `factor`, independent of the number of ranks.
  static LrScaling factor(double factor) { return LrScaling(Kind::kFactor, factor); }

  /// Returns the factor of the rate for `world_size` ranks. Throws std::invalid_argument for fewer than one rank, and
  /// for a factor that is negative or not finite.
  double multiplier(int world_size) const;

 private:
  enum class Kind { kLinear, kSqrt, kFactor };
  LrScaling(Kind kind, double factor) : kind_(kind), factor_(factor) {}

  Kind kind_;
  double factor_;
};

/// Returns the learning rate for `world_size` batches per step, where `lr` is the rate for one rank's batch. Throws
/// std::invalid_argument for a rate that is negative or not finite, and as LrScaling::multiplier() does.
double scale_lr(double lr, int world_size, const LrScaling& scaling = LrScaling::linear());

}  // namespace ddp
