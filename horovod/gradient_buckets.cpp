#include "horovod/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <ddprun/comm/collectives.h>

#include "comm/group/multiply.h"

namespace ddp::horovod {
namespace {

using Kind = std::pair<std::string, at::ScalarType>;

Kind kind_of(const at::Tensor& tensor) {
  return {tensor.device().str(), tensor.scalar_type()};
}

}  // namespace

BucketPlan plan_buckets(const std::vector<at::Tensor>& parameters, const BucketPlan& groups, int64_t max_bytes) {
  BucketPlan plan;
  std::vector<bool> placed(parameters.size());
  for (const auto& group : groups) {
    std::map<Kind, std::vector<size_t>> by_kind;
    for (const size_t i : group) {
      by_kind[kind_of(parameters[i])].push_back(i);
      placed[i] = true;
    }
    for (auto& [kind, members] : by_kind) plan.push_back(std::move(members));
  }
  struct Open {
    size_t bucket = 0;
    int64_t bytes = 0;
  };
  std::map<Kind, Open> open;
  for (size_t i = parameters.size(); i-- > 0;) {
    if (placed[i]) continue;
    const auto bytes = static_cast<int64_t>(parameters[i].nbytes());
    const auto found = open.find(kind_of(parameters[i]));
    if (found == open.end() || found->second.bytes + bytes > max_bytes) {
      open[kind_of(parameters[i])] = {.bucket = plan.size(), .bytes = bytes};
      plan.push_back({i});
    } else {
      plan[found->second.bucket].push_back(i);
      found->second.bytes += bytes;
    }
  }
  // Parameters become ready from the last to the first, so a bucket is complete with the gradient of its first
  // parameter.
  std::stable_sort(plan.begin(), plan.end(), [](const auto& a, const auto& b) {
    return *std::min_element(a.begin(), a.end()) > *std::min_element(b.begin(), b.end());
  });
  return plan;
}

GradientBuckets::GradientBuckets(std::vector<at::Tensor> parameters, const BucketPlan& plan, GroupHandle group,
                                 const GradientBucketsOptions& options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      options_(options),
      bucket_of_(parameters_.size()),
      place_of_(parameters_.size()),
      taken_(parameters_.size()) {
  for (const auto& members : plan) {
    Bucket bucket{.parameters = members};
    int64_t length = 0;
    for (size_t place = 0; place < members.size(); ++place) {
      bucket_of_[members[place]] = buckets_.size();
      place_of_[members[place]] = place;
      bucket.offsets.push_back(length);
      length += parameters_[members[place]].numel();
    }
    const at::Tensor& first = parameters_[members[0]];
    const bool compress = options_.wire_dtype && at::isFloatingType(first.scalar_type());
    bucket.flat = at::empty(
        {length}, first.options().requires_grad(false).dtype(compress ? *options_.wire_dtype : first.scalar_type()));
    buckets_.push_back(std::move(bucket));
  }
}

void GradientBuckets::take_gradient(size_t parameter) {
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (!gradient.defined()) {
    gradient = at::zeros_like(parameters_[parameter]);
  } else if (gradient.is_sparse()) {
    if (!options_.sparse_as_dense) {
      throw std::runtime_error(who(group_.info()) + ": DistributedOptimizer: parameter number " +
                               std::to_string(parameter) + " has a sparse gradient: set sparse_as_dense");
    }
    gradient = gradient.to_dense();
  }
  Bucket& bucket = buckets_[bucket_of_[parameter]];
  const at::Tensor slot = bucket.flat.narrow(0, bucket.offsets[place_of_[parameter]], gradient.numel());
  slot.view(gradient.sizes()).copy_(gradient);
  taken_[parameter] = true;
  ++bucket.ready;
}

void GradientBuckets::start_complete_buckets() {
  while (started_ < buckets_.size() && buckets_[started_].ready == buckets_[started_].parameters.size()) {
    Bucket& bucket = buckets_[started_];
    if (options_.predivide_factor != 1.0) bucket.flat.div_(options_.predivide_factor);
    bucket.pending = all_reduce_async(bucket.flat, group_, options_.average ? ReduceOp::kAvg : ReduceOp::kSum);
    ++started_;
  }
}

void GradientBuckets::gradient_ready(size_t parameter) {
  const at::NoGradGuard no_grad;
  take_gradient(parameter);
  start_complete_buckets();
}

void GradientBuckets::put_back(const Bucket& bucket) {
  multiply(bucket.flat, options_.predivide_factor);
  for (size_t place = 0; place < bucket.parameters.size(); ++place) {
    at::Tensor& gradient = parameters_[bucket.parameters[place]].mutable_grad();
    gradient.copy_(bucket.flat.narrow(0, bucket.offsets[place], gradient.numel()).view(gradient.sizes()));
  }
}

void GradientBuckets::finish() {
  const at::NoGradGuard no_grad;
  try {
    for (size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
      if (!taken_[parameter]) take_gradient(parameter);
    }
    start_complete_buckets();
    for (Bucket& bucket : buckets_) {
      bucket.pending->wait();
      put_back(bucket);
    }
  } catch (...) {
    // Messages that are still being sent use the memory of the buckets.
    for (Bucket& bucket : buckets_) {
      if (bucket.pending) bucket.flat = at::empty_like(bucket.flat);
    }
    reset();
    throw;
  }
  reset();
}

void GradientBuckets::reset() {
  for (Bucket& bucket : buckets_) {
    bucket.ready = 0;
    bucket.pending.reset();
  }
  std::fill(taken_.begin(), taken_.end(), false);
  started_ = 0;
}

}  // namespace ddp::horovod
