#include "comm/reducer/shadow_backward.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <unordered_set>
#include <vector>

namespace ddp::detail {
namespace {

std::unordered_set<const void*> unused_anywhere(const std::vector<at::Tensor>& parameters, const at::Tensor& flags) {
  std::unordered_set<const void*> unused;
  if (!flags.defined()) return unused;
  const at::Tensor used = flags.cpu().ne(0);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!used.const_data_ptr<bool>()[i]) unused.insert(parameters[i].unsafeGetTensorImpl());
  }
  return unused;
}

// c10d::GradBucket takes all of its gradients for contiguous. They lie in the bucket as their parameters do in memory.
at::Tensor as_in_bucket(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (!parameter.is_non_overlapping_and_dense()) return gradient;
  return gradient.as_strided(parameter.sizes(), parameter.strides(), gradient.storage_offset());
}

// Not for parameters that no rank has used.
void take_gradients(std::vector<c10d::GradBucket>& buckets, const std::vector<TensorFuture>& reductions,
                    const std::unordered_set<const void*>& unused) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < buckets.size(); ++i) {
    at::Tensor reduced = c10d::detail::parseCppCommHookResult(reductions[i]->value());
    const auto bucket_parameters = buckets[i].getParameters();
    if (reduced.is_sparse()) {
      bucket_parameters.front().mutable_grad() = reduced.clone();
      continue;
    }
    buckets[i].setBuffer(reduced);
    const auto gradients = buckets[i].getGradients();
    for (size_t j = 0; j < gradients.size(); ++j) {
      if (unused.contains(bucket_parameters[j].unsafeGetTensorImpl())) continue;
      // A copy in the parameter's layout and dtype, as a backward would leave it.
      bucket_parameters[j].mutable_grad() =
          at::empty_like(bucket_parameters[j].detach()).copy_(as_in_bucket(gradients[j], bucket_parameters[j]));
    }
  }
}

}  // namespace

at::Tensor shadow_backward(ReducerEngine& engine, const ReductionContext& context, bool keep_gradients,
                           bool is_first_static) {
  at::Tensor flags;
  if (is_first_static) flags = engine.sum_of_used_flags().clone();  // c10d sends them before the buckets there
  std::vector<TensorFuture> reductions;
  auto buckets = engine.zero_buckets();
  for (c10d::GradBucket& bucket : buckets) reductions.push_back(engine.run_comm_hook(bucket));
  for (const TensorFuture& reduction : reductions) reduction->waitAndThrow();
  const DdpOptions& options = context.options();
  if (options.find_unused_parameters && !options.static_graph) flags = engine.sum_of_used_flags();
  if (keep_gradients) take_gradients(buckets, reductions, unused_anywhere(context.model().parameters, flags));
  // The order of the gradients of a static graph is found in its second backward.
  if (!is_first_static) engine.push_rebuilt_params_for_all_indices();
  return flags;
}

}  // namespace ddp::detail
