#include "ddprun/comm/functional.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "comm/collectives/begin.h"
#include "comm/group/argument_checks.h"

namespace ddp::functional {
namespace {

using detail::BeginOptions;
using detail::Started;
using torch::autograd::AutogradContext;
using Tensors = std::vector<at::Tensor>;

/// The group and settings of a call, which the collectives of its backward have too.
struct Scope {
  GroupHandle group;
  CollectiveOptions options;
  bool async = false;
  std::string note{};  ///< for a backward's collective, whose gradient it is

  BeginOptions begin(bool is_recorded) const {
    std::string text = note;
    if (is_recorded) text += text.empty() ? "with gradient" : ", with gradient";
    return {.options = options, .async = async, .note = std::move(text)};
  }
  Scope of_gradient(uint64_t number) const {
    return {.group = group, .options = options, .note = "gradient of number " + std::to_string(number)};
  }
};

struct Result {
  Started started;
  Tensors outputs;
};

/// A collective and its gradient.
struct Rule {
  std::function<Result(const Tensors& inputs, const BeginOptions& begin)> run;
  /// A gradient of each output to one of each input; `saved` are the inputs and outputs, with `saves`.
  std::function<Tensors(const Tensors& gradients, const Tensors& saved, const Scope& scope)> backward;
  bool saves = false;
};

// What the backward needs beside tensors.
struct Gradient final : torch::CustomClassHolder {
  Gradient(Rule of_call, Scope of_backward) : rule(std::move(of_call)), scope(std::move(of_backward)) {}

  Rule rule;
  Scope scope;
};

struct Recorded : torch::autograd::Function<Recorded> {
  static Tensors forward(AutogradContext* context, at::TensorList inputs, const Rule& rule, const Scope& scope,
                         bool is_recorded, Started& started) {
    Tensors plain;
    for (const at::Tensor& input : inputs) {
      plain.push_back(input.detach().resolve_conj().resolve_neg().contiguous());
    }
    Result result = rule.run(plain, scope.begin(is_recorded));
    started = result.started;
    if (!is_recorded) return std::move(result.outputs);
    auto gradient = c10::make_intrusive<Gradient>(rule, scope.of_gradient(started->number()));
    context->saved_data["gradient"] = c10::IValue::make_capsule(std::move(gradient));
    if (rule.saves) {
      Tensors saved(inputs.begin(), inputs.end());
      saved.insert(saved.end(), result.outputs.begin(), result.outputs.end());
      context->save_for_backward(std::move(saved));
    }
    return std::move(result.outputs);
  }

  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const auto gradient = c10::static_intrusive_pointer_cast<Gradient>(context->saved_data.at("gradient").toCapsule());
    const Tensors saved = gradient->rule.saves ? context->get_saved_variables() : Tensors();
    Tensors results = gradient->rule.backward(gradients, saved, gradient->scope);
    results.resize(results.size() + 4);  // rule, scope, is_recorded and started have none
    return results;
  }
};

Result begin(const Scope& scope, const Tensors& inputs, const Rule& rule) {
  const bool is_recorded = at::GradMode::is_enabled() && std::ranges::any_of(inputs, [](const at::Tensor& input) {
                             return input.defined() && input.requires_grad();
                           });
  Result result;
  result.outputs = Recorded::apply(at::TensorList(inputs), rule, scope, is_recorded, result.started);
  return result;
}

Tensors run(const Scope& scope, const Tensors& inputs, const Rule& rule) {
  Result result = begin(scope, inputs, rule);
  if (result.started) result.started->wait();
  return std::move(result.outputs);
}

at::Tensor run_one(const Scope& scope, const at::Tensor& input, const Rule& rule) {
  return run(scope, {input}, rule).front();
}

Pending<at::Tensor> run_async(Scope scope, const at::Tensor& input, const Rule& rule) {
  scope.async = true;
  Result result = begin(scope, {input}, rule);
  return {std::move(result.started), std::move(result.outputs.front())};
}

[[noreturn]] void refuse_backward(const char* operation, ReduceOp op, const Scope& scope) {
  throw std::runtime_error(who(scope.group.info()) + ": " + operation + " (" + detail::name_of(op) +
                           ") has no gradient; it was met in a backward (" + scope.note +
                           "). Use sum or avg, or call it without gradient mode");
}

void check_defined(const Tensors& inputs, const GroupHandle& group, const char* operation) {
  for (const at::Tensor& input : inputs) detail::check_packable(input, group, operation);
}

bool is_extremum(ReduceOp op) {
  return op == ReduceOp::kMin || op == ReduceOp::kMax;
}

// all_reduce

Rule all_reduce_rule(const GroupHandle& group, ReduceOp op, bool is_coalesced);

// Where this rank has the result. Of NaN only where the result is one: backends may drop it.
at::Tensor extremum_mask(const at::Tensor& input, const at::Tensor& output) {
  return input.eq(output).logical_or(input.isnan().logical_and(output.isnan()));
}

// The sum of the gradients goes to all places that have the extremum, in equal parts. Their number is a sum of float32,
// which counts exactly where the gradients' dtype would not.
Tensors share_among_extrema(const Tensors& sums, const Tensors& saved, const Scope& scope, bool is_coalesced) {
  const size_t count = sums.size();
  Tensors masks;
  Tensors counts;
  for (size_t i = 0; i < count; ++i) {
    masks.push_back(extremum_mask(saved[i], saved[count + i]));
    counts.push_back(masks[i].to(at::kFloat));
  }
  counts = run(scope, counts, all_reduce_rule(scope.group, ReduceOp::kSum, is_coalesced));
  Tensors results;
  for (size_t i = 0; i < count; ++i) {
    results.push_back(at::where(masks[i], (sums[i] / counts[i]).to(sums[i].scalar_type()), at::Scalar(0)));
  }
  return results;
}

Rule all_reduce_rule(const GroupHandle& group, ReduceOp op, bool is_coalesced) {
  return {.run =
              [group, op, is_coalesced](const Tensors& inputs, const BeginOptions& begin) {
                Tensors outputs;
                for (const at::Tensor& input : inputs) outputs.push_back(input.clone());
                Started started = is_coalesced ? detail::begin_all_reduce_coalesced(outputs, group, op, begin)
                                               : detail::begin_all_reduce(outputs.front(), group, op, begin);
                return Result{std::move(started), std::move(outputs)};
              },
          .backward =
              [op, is_coalesced](const Tensors& gradients, const Tensors& saved, const Scope& scope) {
                if (op == ReduceOp::kProduct) refuse_backward("all_reduce", op, scope);
                const ReduceOp of_gradient = is_extremum(op) ? ReduceOp::kSum : op;
                Tensors sums = run(scope, gradients, all_reduce_rule(scope.group, of_gradient, is_coalesced));
                return is_extremum(op) ? share_among_extrema(sums, saved, scope, is_coalesced) : sums;
              },
          .saves = is_extremum(op)};
}

// all_gather and reduce_scatter, each the other's gradient

Rule reduce_scatter_rule(const GroupHandle& group, ReduceOp op);

// (1) for a tensor without dimensions.
at::Tensor with_dimension(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
}

// One call for each tensor, under way at once: the last bits of sums are those of single calls.
template <typename Begin>
Result begin_each(const Tensors& inputs, const Begin& begin_one) {
  std::vector<Started> started;
  Tensors outputs;
  for (const at::Tensor& input : inputs) {
    detail::StartedWithOutput one = begin_one(input);
    started.push_back(std::move(one.first));
    outputs.push_back(std::move(one.second));
  }
  return {started.size() == 1 ? started.front() : detail::all_of(std::move(started)), std::move(outputs)};
}

Rule all_gather_rule(const GroupHandle& group) {
  return {.run =
              [group](const Tensors& inputs, const BeginOptions& begin) {
                return begin_each(inputs, [&](const at::Tensor& input) {
                  detail::StartedWithOutput one = detail::begin_all_gather(input, group, begin);
                  std::vector<int64_t> shape = input.sizes().vec();
                  shape[0] *= group.size();
                  one.second = at::_unsafe_view(one.second, shape);  // no view for autograd
                  return one;
                });
              },
          .backward =
              [](const Tensors& gradients, const Tensors&, const Scope& scope) {
                return run(scope, gradients, reduce_scatter_rule(scope.group, ReduceOp::kSum));
              }};
}

Rule reduce_scatter_rule(const GroupHandle& group, ReduceOp op) {
  return {.run =
              [group, op](const Tensors& inputs, const BeginOptions& begin) {
                return begin_each(inputs, [&](const at::Tensor& input) {
                  return detail::begin_reduce_scatter(input, group, op, begin);
                });
              },
          .backward =
              [op](const Tensors& gradients, const Tensors&, const Scope& scope) {
                if (op != ReduceOp::kSum && op != ReduceOp::kAvg) refuse_backward("reduce_scatter", op, scope);
                Tensors results = run(scope, gradients, all_gather_rule(scope.group));
                if (op == ReduceOp::kSum) return results;
                for (at::Tensor& result : results) result = result / scope.group.size();
                return results;
              }};
}

// all_to_all

using Sizes = std::vector<int64_t>;

Rule all_to_all_rule(const GroupHandle& group, const Sizes& output_sizes, const Sizes& input_sizes) {
  return {.run =
              [=](const Tensors& inputs, const BeginOptions& begin) {
                detail::StartedWithOutput one =
                    input_sizes.empty()
                        ? detail::begin_all_to_all(inputs.front(), group, begin)
                        : detail::begin_all_to_all(inputs.front(), output_sizes, input_sizes, group, begin);
                return Result{std::move(one.first), {std::move(one.second)}};
              },
          .backward =
              [=](const Tensors& gradients, const Tensors&, const Scope& scope) {
                return run(scope, gradients, all_to_all_rule(scope.group, input_sizes, output_sizes));
              }};
}

// Those with a root

Rule reduce_rule(const GroupHandle& group, int root, ReduceOp op);

Rule broadcast_rule(const GroupHandle& group, int root) {
  return {.run =
              [=](const Tensors& inputs, const BeginOptions& begin) {
                at::Tensor output = inputs.front().clone();
                Started started = detail::begin_broadcast(output, root, group, begin);
                return Result{std::move(started), {std::move(output)}};
              },
          .backward =
              [root](const Tensors& gradients, const Tensors&, const Scope& scope) {
                return run(scope, gradients, reduce_rule(scope.group, root, ReduceOp::kSum));
              }};
}

Rule reduce_rule(const GroupHandle& group, int root, ReduceOp op) {
  return {.run =
              [=](const Tensors& inputs, const BeginOptions& begin) {
                at::Tensor buffer = inputs.front().clone();
                Started started = detail::begin_reduce(buffer, root, group, op, begin);
                // Elsewhere the buffer may be used for partial sums.
                at::Tensor output = group.rank() == root ? buffer : at::zeros_like(buffer);
                return Result{std::move(started), {std::move(output)}};
              },
          .backward =
              [root, op](const Tensors& gradients, const Tensors&, const Scope& scope) {
                if (op != ReduceOp::kSum && op != ReduceOp::kAvg) refuse_backward("reduce", op, scope);
                Tensors results = run(scope, gradients, broadcast_rule(scope.group, root));
                if (op == ReduceOp::kAvg) results.front() = results.front() / scope.group.size();
                return results;
              }};
}

Rule scatter_rule(const GroupHandle& group, int root);

Rule gather_rule(const GroupHandle& group, int root) {
  return {.run =
              [=](const Tensors& inputs, const BeginOptions& begin) {
                const at::Tensor& input = inputs.front();
                auto [started, rows] = detail::begin_gather(input, root, group, begin);
                std::vector<int64_t> shape = input.sizes().vec();
                shape[0] *= group.size();
                at::Tensor output = rows.defined() ? at::_unsafe_view(rows, shape) : at::zeros(shape, input.options());
                return Result{std::move(started), {std::move(output)}};
              },
          .backward = [root](const Tensors& gradients, const Tensors&,
                             const Scope& scope) { return run(scope, gradients, scatter_rule(scope.group, root)); }};
}

Rule scatter_rule(const GroupHandle& group, int root) {
  return {.run =
              [=](const Tensors& inputs, const BeginOptions& begin) {
                const Tensors parts = inputs.front().chunk(group.size());
                at::Tensor output = at::empty_like(parts.front());
                Started started = detail::begin_scatter(output, parts, root, group, begin);
                return Result{std::move(started), {std::move(output)}};
              },
          .backward = [root](const Tensors& gradients, const Tensors&,
                             const Scope& scope) { return run(scope, gradients, gather_rule(scope.group, root)); }};
}

// Checks of arguments before anything is sent

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
  const at::Tensor gathered =
      run_one({.group = group, .options = options}, with_dimension(input), all_gather_rule(group));
  if (along == 0) return gathered;
  return at::cat(gathered.chunk(group.size()), along);
}

Pending<at::Tensor> all_gather_async(const at::Tensor& input, const GroupHandle& group,
                                     const CollectiveOptions& options) {
  check_defined({input}, group, "all_gather");
  return run_async({.group = group, .options = options}, with_dimension(input), all_gather_rule(group));
}

std::vector<at::Tensor> all_gather_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                             const CollectiveOptions& options) {
  check_defined(inputs, group, "all_gather_coalesced");
  if (inputs.empty()) return {};
  Tensors shaped;
  for (const at::Tensor& input : inputs) shaped.push_back(with_dimension(input));
  return run({.group = group, .options = options}, shaped, all_gather_rule(group));
}

at::Tensor reduce_scatter(const at::Tensor& input, const GroupHandle& group, ReduceOp op, int64_t dim,
                          const CollectiveOptions& options) {
  const int64_t along = checked_dim(input, dim, group, "reduce_scatter");
  check_parts(input, along, group, "reduce_scatter");
  const at::Tensor parts = along == 0 ? input : at::cat(input.chunk(group.size(), along));
  return run_one({.group = group, .options = options}, parts, reduce_scatter_rule(group, op));
}

Pending<at::Tensor> reduce_scatter_async(const at::Tensor& input, const GroupHandle& group, ReduceOp op,
                                         const CollectiveOptions& options) {
  check_parts(input, 0, group, "reduce_scatter");
  return run_async({.group = group, .options = options}, input, reduce_scatter_rule(group, op));
}

std::vector<at::Tensor> reduce_scatter_coalesced(const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                                                 ReduceOp op, const CollectiveOptions& options) {
  for (const at::Tensor& input : inputs) check_parts(input, 0, group, "reduce_scatter_coalesced");
  if (inputs.empty()) return {};
  return run({.group = group, .options = options}, inputs, reduce_scatter_rule(group, op));
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
