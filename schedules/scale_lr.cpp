#include "ddprun/schedules/scale_lr.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "base/rank_prefix.h"

namespace ddp {

double LrScaling::multiplier(int world_size) const {
  if (world_size < 1) {
    throw std::invalid_argument(rank_prefix() + "scale_lr: the world size must be at least 1, got " +
                                std::to_string(world_size));
  }
  if (!std::isfinite(factor_) || factor_ < 0) {
    throw std::invalid_argument(rank_prefix() + "scale_lr: Invalid factor: " + number_text(factor_));
  }
  switch (kind_) {
    case Kind::kLinear:
      return world_size;
    case Kind::kSqrt:
      return std::sqrt(static_cast<double>(world_size));
    case Kind::kFactor:
      return factor_;
  }
  return 1;
}

double scale_lr(double lr, int world_size, const LrScaling& scaling) {
  if (!std::isfinite(lr) || lr < 0) {
    throw std::invalid_argument(rank_prefix() + "scale_lr: Invalid learning rate: " + number_text(lr));
  }
  return lr * scaling.multiplier(world_size);
}

}  // namespace ddp
