#include "comm/reducer/bucket_tuning.h"

#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/reducer/option_rules.h"

namespace ddp::detail {
namespace {

bool has_final_order(const ReducerEngine& engine) {
  return engine.has_rebuilt() || !engine.should_rebuild_buckets();
}

}  // namespace

BucketTuning::BucketTuning(std::shared_ptr<const ReductionContext> context)
    : context_(std::move(context)), tuner_(context_->model().bytes()) {}

bool BucketTuning::before_forward(ReducerEngine& engine) {
  if (tuner_.is_finished()) return false;
  if (tuner_.needs_decision()) agree();
  return (has_final_order(engine) || tuner_.is_finished()) && apply(engine);
}

void BucketTuning::after_forward(const ReducerEngine& engine) {
  if (tuner_.is_finished() || !has_final_order(engine)) return;
  synchronise();
  measured_from_ = std::chrono::steady_clock::now();
}

void BucketTuning::after_backward() {
  if (!measured_from_) return;
  synchronise();
  tuner_.record(std::chrono::duration<double>(std::chrono::steady_clock::now() - *measured_from_).count());
  measured_from_.reset();
}

bool BucketTuning::stop(ReducerEngine& engine) {
  if (tuner_.is_finished()) return false;
  tuner_.stop(context_->options().bucket_cap_bytes.bytes());
  return apply(engine);
}

void BucketTuning::agree() {
  const at::Tensor times = at::tensor(tuner_.times(), at::kFloat).to(context_->model().parameters.front().device());
  all_reduce(times, context_->group(), ReduceOp::kMax);
  const at::Tensor on_host = times.cpu().to(at::kDouble);
  const auto* first = on_host.const_data_ptr<double>();
  tuner_.decide(std::vector<double>(first, first + on_host.numel()));
}

bool BucketTuning::apply(ReducerEngine& engine) {
  if (std::exchange(applied_cap_, tuner_.bytes()) == tuner_.bytes()) return false;
  engine.regroup(std::min(first_bucket_bytes(context_->options()), tuner_.bytes()), tuner_.bytes());
  return true;
}

void BucketTuning::synchronise() const {
  const c10::Device device = context_->model().parameters.front().device();
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace ddp::detail
