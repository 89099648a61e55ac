#include "fsdp/core/gradient_division.h"

#include <cmath>

namespace ddp::fsdp {

GradientDivision division_of(const DivisionCase& one) {
  GradientDivision division;
  const double ranks = static_cast<double>(one.shards) * one.replicas;
  if (!one.may_overflow && !one.only_sums) {
    if (!one.factor) {
      division.scatter_averages = division.all_reduce_averages = ranks > 1;
    } else if (one.shards == 1) {  // without a reduce-scatter
      division.before = *one.factor;
    } else if (*one.factor == one.shards) {
      division.scatter_averages = true;
    } else {
      division.multiplied = 1 / *one.factor;
    }
    return division;
  }
  const double factor = one.factor.value_or(ranks);
  if (one.may_overflow) {
    // Of the powers of two that divide the factor, the one nearest to its square root. Then the sum stays in range.
    while (std::fmod(factor, division.before) == 0 && factor / division.before > division.before) division.before *= 2;
  }
  division.after = factor / division.before;
  return division;
}

}  // namespace ddp::fsdp
