#include "syncbn/gather_stats.h"

namespace ddp::detail {

double gather_stats(const double* rows, int64_t ranks, int64_t stride, int64_t channels, double* mean,
                    double* variance) {
  double total = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) total += rows[rank * stride];
  for (int64_t c = 0; c < channels; ++c) mean[c] = variance[c] = 0;
  if (total == 0) return total;
  const double share = 1 / total;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double count = rows[rank * stride];
    const double* means = rows + rank * stride + 1;
    for (int64_t c = 0; c < channels; ++c) mean[c] += count * share * means[c];
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double count = rows[rank * stride];
    const double* means = rows + rank * stride + 1;
    const double* m2 = means + channels;
    for (int64_t c = 0; c < channels; ++c) {
      const double delta = means[c] - mean[c];
      variance[c] += (m2[c] + count * delta * delta) * share;
    }
  }
  return total;
}

void update_running(double* running, const double* batch, int64_t n, double momentum) {
  for (int64_t i = 0; i < n; ++i) running[i] = (1 - momentum) * running[i] + momentum * batch[i];
}

}  // namespace ddp::detail
