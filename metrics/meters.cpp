#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

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
  if (samples > 0) sum_ += mean * static_cast<double>(samples);  // the mean of zero samples is NaN
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

Accuracy::Accuracy(std::vector<int64_t> top_k) : top_k_(std::move(top_k)) {
  if (top_k_.empty() || *std::min_element(top_k_.begin(), top_k_.end()) < 1) {
    throw std::invalid_argument("Accuracy: expected values of top_k of at least 1, such as {1, 5}");
  }
}

void Accuracy::update(const at::Tensor& scores, const at::Tensor& target) {
  const int64_t most = *std::max_element(top_k_.begin(), top_k_.end());
  if (scores.dim() != 2 || target.dim() != 1 || scores.size(0) != target.size(0) || scores.size(1) < most) {
    std::ostringstream message;
    message << "Accuracy: expected scores (N, classes) with at least " << most << " classes and target (N), got "
            << scores.sizes() << " and " << target.sizes();
    throw std::invalid_argument(message.str());
  }
  const at::Tensor guesses =
      most == 1 ? scores.detach().argmax(1, /*keepdim=*/true) : std::get<1>(scores.detach().topk(most, 1));
  const at::Tensor is_right = guesses.eq(target.unsqueeze(1));
  const auto on_device = scores.options().dtype(at::kLong);
  std::vector<at::Tensor> counts;
  for (const int64_t k : top_k_) counts.push_back(is_right.narrow(1, 0, k).sum());
  counts.push_back(at::full({}, target.size(0), on_device));
  // Allocates a new tensor instead of adding in place: copies of this object share the old tensor, and it may be an
  // inference tensor.
  counts_ = counts_.defined() ? counts_.add(at::stack(counts)) : at::stack(counts);
}

AccuracyCounts Accuracy::counts(const GroupHandle& group) const {
  const auto kinds = static_cast<int64_t>(top_k_.size());
  at::Tensor counts = counts_.defined() ? counts_.to(group.device(), at::kLong, /*non_blocking=*/false, /*copy=*/true)
                                        : at::zeros({kinds + 1}, at::TensorOptions(group.device()).dtype(at::kLong));
  all_reduce(counts, group);
  const at::Tensor result = counts.to(at::kCPU);
  const int64_t* values = result.const_data_ptr<int64_t>();
  return {.right = {values, values + kinds}, .samples = values[kinds]};
}

std::vector<double> Accuracy::compute(const GroupHandle& group) const {
  const auto [right, samples] = counts(group);
  std::vector<double> fractions;
  for (const int64_t count : right) {
    fractions.push_back(samples == 0 ? std::numeric_limits<double>::quiet_NaN()
                                     : static_cast<double>(count) / static_cast<double>(samples));
  }
  return fractions;
}

void Accuracy::reset() {
  counts_ = at::Tensor();
}

double Throughput::seconds() const {
  constexpr double kMinSeconds = 1e-9;  // avoids division by zero if the clock has not advanced
  return std::max(kMinSeconds, std::chrono::duration<double>(Clock::now() - start_).count());
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
