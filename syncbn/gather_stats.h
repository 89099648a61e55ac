// Internal: one batch's statistics out of every rank's share of it. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace ddp::detail {

/// Merges `ranks` rows of 1 + 2·channels numbers, `stride` apart: count, means, sums of squared deviations from that
/// mean. Writes means and biased variances of `channels` numbers each (zeros when every count is 0) and returns the
/// total count. Sums n·mean and then M2 + n·Δ²: a rank without values adds nothing, whichever it is, and nothing
/// cancels. Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983.
double gather_stats(const double* rows, int64_t ranks, int64_t stride, int64_t channels, double* mean,
                    double* variance);

/// running = (1 - momentum) * running + momentum * batch, for `n` numbers. The same bits on every machine of one kind,
/// whatever vector instructions it has.
void update_running(double* running, const double* batch, int64_t n, double momentum);

}  // namespace ddp::detail
