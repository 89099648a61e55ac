#include <ATen/ops/zeros.h>

#include <algorithm>

#include <ddprun/comm/collectives.h>

#include "ddprun/metrics/metrics.h"

namespace ddp {

double Throughput::seconds() const {
  constexpr double kLeast = 1e-9;  // the clock may not have moved
  return std::max(kLeast, std::chrono::duration<double>(Clock::now() - start_).count());
}

double Throughput::per_second() const {
  return static_cast<double>(samples_) / seconds();
}

double Throughput::compute(const GroupHandle& group) const {
  const double own_seconds = seconds();
  at::Tensor samples = at::zeros({1}, at::TensorOptions(group.device()).dtype(at::kLong)).fill_(samples_);
  at::Tensor longest = at::zeros({1}, at::TensorOptions(group.device()).dtype(at::kDouble)).fill_(own_seconds);
  all_reduce(samples, group);
  all_reduce(longest, group, ReduceOp::kMax);
  return static_cast<double>(samples.item<int64_t>()) / longest.item<double>();
}

void Throughput::reset() {
  *this = Throughput();
}

}  // namespace ddp
