// Internal: merges the statistics of all ranks' parts of one batch. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace ddp::detail {

/// Merges `ranks` rows of 1 + 2·channels numbers, `stride` apart: the count, the means, and the sums of squared
/// deviations from these means. Writes `channels` means and biased variances (zeros if every count is 0) and returns
/// the total count. It first sums n·mean and then M2 + n·Δ², so that a rank without values adds nothing and no
/// precision is lost by cancellation. Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983.
double gather_stats(const double* rows, int64_t ranks, int64_t stride, int64_t channels, double* mean,
                    double* variance);

/// Computes running = (1 - momentum) * running + momentum * batch for `n` numbers. The bits are the same on all
/// machines of one architecture, independent of their vector instructions.
void update_running(double* running, const double* batch, int64_t n, double momentum);

}  // namespace ddp::detail
