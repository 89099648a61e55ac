#include <ATen/ops/zeros.h>

#include <limits>
#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>

#include "ddprun/metrics/metrics.h"

namespace ddp {
namespace {

void check_samples(int64_t samples) {
  if (samples < 0) throw std::invalid_argument("Average: cannot count " + std::to_string(samples) + " samples");
}

}  // namespace

void Average::update(double mean, int64_t samples) {
  check_samples(samples);
  if (samples > 0) sum_ += mean * static_cast<double>(samples);  // a mean over nothing is NaN
  samples_ += samples;
}

void Average::update(const at::Tensor& mean, int64_t samples) {
  check_samples(samples);
  if (!mean.defined() || mean.numel() != 1) throw std::invalid_argument("Average: expected a tensor of one element");
  if (samples == 0) return;
  const at::Tensor sum = mean.detach().reshape({}).to(at::kDouble).mul(static_cast<double>(samples));
  device_sum_ = device_sum_.defined() ? device_sum_.add(sum) : sum;
  samples_ += samples;
}

double Average::Totals::mean() const {
  return samples == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / samples;
}

double Average::compute(const GroupHandle& group) const {
  return totals(group).mean();
}

Average::Totals Average::totals(const GroupHandle& group) const {
  at::Tensor totals = at::zeros({2}, at::TensorOptions(at::kDouble));
  totals[0].fill_(sum_);
  totals[1].fill_(static_cast<double>(samples_));  // exact up to 2^53 samples
  totals = totals.to(group.device());
  if (device_sum_.defined()) totals[0].add_(device_sum_.to(group.device()));
  all_reduce(totals, group);
  const at::Tensor result = totals.to(at::kCPU);
  return {.sum = result[0].item<double>(), .samples = result[1].item<double>()};
}

void Average::reset() {
  *this = Average();
}

}  // namespace ddp
