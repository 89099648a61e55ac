#include "ddprun/comm/functional.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "comm/collectives/gradient_rules.h"
#include "comm/group/argument_checks.h"

namespace ddp::functional {
namespace {

at::Tensor run_one(const Scope& scope, const at::Tensor& input, const Rule& rule) {
  return run(scope, {input}, rule).front();
}

Pending<at::Tensor> run_async(Scope scope, const at::Tensor& input, const Rule& rule) {
  scope.async = true;
  Result result = begin(scope, {input}, rule);
  return {std::move(result.started), std::move(result.outputs.front())};
}

void check_defined(const Tensors& inputs, const GroupHandle& group, const char* operation) {
  for (const at::Tensor& input : inputs) detail::check_packable(input, group, operation);
}

// A tensor without dimensions is viewed as one of shape (1).
at::Tensor with_dimension(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
}

void check_parts(const at::Tensor& input, int64_t dim, const GroupHandle& group, const char* operation) {
  detail::check_packable(input, group, operation);
  if (dim >= 0 && dim < input.dim() && input.size(dim) % group.size() == 0) return;
  detail::refuse(group, operation,
                 "expected a dimension " + std::to_string(dim) + " whose size is a multiple of the group's size " +
                     std::to_string(group.size()) + ", got a " + detail::describe(input));
}

int64_t checked_dim(const at::Tensor& input, int64_t dim, const GroupHandle& group, const char* operation) {
  detail::check_packable(input, group, operation);
  const int64_t dims = std::max<int64_t>(input.dim(), 1);
  const int64_t wrapped = dim < 0 ? dim + dims : dim;
  if (wrapped >= 0 && wrapped < dims) return wrapped;
  detail::refuse(group, operation, "dimension " + std::to_string(dim) + " is not one of a " + detail::describe(input));
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& input, const GroupHandle& group, ReduceOp op,
                      const CollectiveOptions& options) {
  check_defined({input}, group, "all_reduce");
  return run_one({.group = group, .options = options}, input, all_reduce_rule(group, op, /*is_coalesced=*/false));
}

Pending<at::Tensor> all_reduce_async(const at::Tensor& input, const GroupHandle& group, ReduceOp op,
                                     const CollectiveOptions& options) {
  check_defined({input}, group, "all_reduce");
  return run_async({.group = group, .options = options}, input, all_reduce_rule(group, op, /*is_coalesced=*/false));
}

std::vector<at::Tensor> all_reduce_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                             ReduceOp op, const CollectiveOptions& options) {
  check_defined(inputs, group, "all_reduce_coalesced");
  if (inputs.empty()) return {};
  return run({.group = group, .options = options}, inputs, all_reduce_rule(group, op, /*is_coalesced=*/true));
}

at::Tensor all_gather(const at::Tensor& input, const GroupHandle& group, int64_t dim,
                      const CollectiveOptions& options) {
  const int64_t along = checked_dim(input, dim, group, "all_gather");
  const at::Tensor gathered = run_one({.group = group, .options = options}, with_dimension(input),
                                      all_gather_rule(group, /*is_coalesced=*/false));
  if (along == 0) return gathered;
  return at::cat(gathered.chunk(group.size()), along);
}

Pending<at::Tensor> all_gather_async(const at::Tensor& input, const GroupHandle& group,
                                     const CollectiveOptions& options) {
  check_defined({input}, group, "all_gather");
  return run_async({.group = group, .options = options}, with_dimension(input),
                   all_gather_rule(group, /*is_coalesced=*/false));
}

std::vector<at::Tensor> all_gather_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                             const CollectiveOptions& options) {
  check_defined(inputs, group, "all_gather_coalesced");
  if (inputs.empty()) return {};
  Tensors shaped;
  for (const at::Tensor& input : inputs) shaped.push_back(with_dimension(input));
  return run({.group = group, .options = options}, shaped, all_gather_rule(group, /*is_coalesced=*/true));
}

at::Tensor reduce_scatter(const at::Tensor& input, const GroupHandle& group, ReduceOp op, int64_t dim,
                          const CollectiveOptions& options) {
  const int64_t along = checked_dim(input, dim, group, "reduce_scatter");
  check_parts(input, along, group, "reduce_scatter");
  const at::Tensor parts = along == 0 ? input : at::cat(input.chunk(group.size(), along));
  return run_one({.group = group, .options = options}, parts, reduce_scatter_rule(group, op, /*is_coalesced=*/false));
}

Pending<at::Tensor> reduce_scatter_async(const at::Tensor& input, const GroupHandle& group, ReduceOp op,
                                         const CollectiveOptions& options) {
  check_parts(input, 0, group, "reduce_scatter");
  return run_async({.group = group, .options = options}, input, reduce_scatter_rule(group, op, /*is_coalesced=*/false));
}

std::vector<at::Tensor> reduce_scatter_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                                 ReduceOp op, const CollectiveOptions& options) {
  for (const at::Tensor& input : inputs) check_parts(input, 0, group, "reduce_scatter_coalesced");
  if (inputs.empty()) return {};
  return run({.group = group, .options = options}, inputs, reduce_scatter_rule(group, op, /*is_coalesced=*/true));
}

at::Tensor all_to_all(const at::Tensor& input, const GroupHandle& group, const CollectiveOptions& options) {
  check_parts(input, 0, group, "all_to_all");
  return run_one({.group = group, .options = options}, input, all_to_all_rule(group, {}, {}));
}

at::Tensor all_to_all(const at::Tensor& input, const std::vector<int64_t>& output_split_sizes,
                      const std::vector<int64_t>& input_split_sizes, const GroupHandle& group,
                      const CollectiveOptions& options) {
  check_defined({input}, group, "all_to_all");
  const size_t size = static_cast<size_t>(group.size());
  if (input_split_sizes.size() != size || output_split_sizes.size() != size) {
    detail::refuse(group, "all_to_all",
                   "expected " + std::to_string(size) + " split sizes for the input and the output, got " +
                       std::to_string(input_split_sizes.size()) + " and " + std::to_string(output_split_sizes.size()));
  }
  return run_one({.group = group, .options = options}, input,
                 all_to_all_rule(group, output_split_sizes, input_split_sizes));
}

Pending<at::Tensor> all_to_all_async(const at::Tensor& input, const GroupHandle& group,
                                     const CollectiveOptions& options) {
  check_parts(input, 0, group, "all_to_all");
  return run_async({.group = group, .options = options}, input, all_to_all_rule(group, {}, {}));
}

at::Tensor broadcast(const at::Tensor& input, int root, const GroupHandle& group, const CollectiveOptions& options) {
  check_defined({input}, group, "broadcast");
  return run_one({.group = group, .options = options}, input, broadcast_rule(group, root));
}

at::Tensor reduce(const at::Tensor& input, int root, const GroupHandle& group, ReduceOp op,
                  const CollectiveOptions& options) {
  check_defined({input}, group, "reduce");
  return run_one({.group = group, .options = options}, input, reduce_rule(group, root, op));
}

at::Tensor gather(const at::Tensor& input, int root, const GroupHandle& group, const CollectiveOptions& options) {
  check_defined({input}, group, "gather");
  return run_one({.group = group, .options = options}, with_dimension(input), gather_rule(group, root));
}

at::Tensor scatter(const at::Tensor& input, int root, const GroupHandle& group, const CollectiveOptions& options) {
  check_parts(input, 0, group, "scatter");
  return run_one({.group = group, .options = options}, input, scatter_rule(group, root));
}

}  // namespace ddp::functional
