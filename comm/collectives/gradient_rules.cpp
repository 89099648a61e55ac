#include "comm/collectives/gradient_rules.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddp::functional {
namespace {

using detail::BeginOptions;
using detail::Started;
using torch::autograd::AutogradContext;

// The values that the backward needs, apart from tensors.
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
    const detail::CallPurposeScope purpose(scope.purpose);
    Result result = rule.run(plain, scope.begin(is_recorded));
    started = result.started;
    if (!is_recorded) return std::move(result.outputs);
    auto gradient = c10::make_intrusive<Gradient>(rule, scope.of_gradient(started->number()));
    context->saved_data["gradient"] = c10::IValue::make_capsule(std::move(gradient));
    if (rule.saves) {
      // Later writes of the collective to its outputs must not count as changes of the saved tensors.
      if (!scope.async) started->wait();
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

[[noreturn]] void refuse_backward(const char* operation, ReduceOp op, const Scope& scope) {
  throw std::runtime_error(who(scope.group.info()) + ": " + operation + " (" + detail::name_of(op) +
                           ") is not differentiable, but a backward needs its gradient (" + scope.note +
                           "). Use sum or avg, or call it under torch::NoGradGuard");
}

detail::StartedWithOutputs as_lists(detail::StartedWithOutput one) {
  return {std::move(one.first), {std::move(one.second)}};
}

bool is_extremum(ReduceOp op) {
  return op == ReduceOp::kMin || op == ReduceOp::kMax;
}

// Where this rank has the extremum. A NaN of the input counts only if the result is NaN too: some backends drop NaN.
at::Tensor extremum_mask(const at::Tensor& input, const at::Tensor& output) {
  return input.eq(output).logical_or(input.isnan().logical_and(output.isnan()));
}

// Divides the sum of the gradients equally among all elements that have the extremum. These elements are counted in
// float32, which is exact where the gradients' dtype would not be.
Tensors divide_among_extrema(const Tensors& sums, const Tensors& saved, const Scope& scope, bool is_coalesced) {
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

}  // namespace

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

// all_reduce

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
                if (op == ReduceOp::kProduct) {
                  refuse_backward(is_coalesced ? "all_reduce_coalesced" : "all_reduce", op, scope);
                }
                const ReduceOp of_gradient = is_extremum(op) ? ReduceOp::kSum : op;
                Tensors sums = run(scope, gradients, all_reduce_rule(scope.group, of_gradient, is_coalesced));
                return is_extremum(op) ? divide_among_extrema(sums, saved, scope, is_coalesced) : sums;
              },
          .saves = is_extremum(op)};
}

// all_gather and reduce_scatter, each the other's gradient

Rule all_gather_rule(const GroupHandle& group, bool is_coalesced) {
  return {.run =
              [group, is_coalesced](const Tensors& inputs, const BeginOptions& begin) {
                auto [started, outputs] = is_coalesced
                                              ? detail::begin_all_gather_coalesced(inputs, group, begin)
                                              : as_lists(detail::begin_all_gather(inputs.front(), group, begin));
                for (size_t i = 0; i < inputs.size(); ++i) {
                  std::vector<int64_t> shape = inputs[i].sizes().vec();
                  shape[0] *= group.size();
                  outputs[i] = at::_unsafe_view(outputs[i], shape);  // no view for autograd
                }
                return Result{std::move(started), std::move(outputs)};
              },
          .backward =
              [is_coalesced](const Tensors& gradients, const Tensors&, const Scope& scope) {
                return run(scope, gradients, reduce_scatter_rule(scope.group, ReduceOp::kSum, is_coalesced));
              }};
}

Rule reduce_scatter_rule(const GroupHandle& group, ReduceOp op, bool is_coalesced) {
  return {.run =
              [group, op, is_coalesced](const Tensors& inputs, const BeginOptions& begin) {
                auto [started, outputs] =
                    is_coalesced ? detail::begin_reduce_scatter_coalesced(inputs, group, op, begin)
                                 : as_lists(detail::begin_reduce_scatter(inputs.front(), group, op, begin));
                return Result{std::move(started), std::move(outputs)};
              },
          .backward =
              [op, is_coalesced](const Tensors& gradients, const Tensors&, const Scope& scope) {
                if (op != ReduceOp::kSum && op != ReduceOp::kAvg) {
                  refuse_backward(is_coalesced ? "reduce_scatter_coalesced" : "reduce_scatter", op, scope);
                }
                Tensors results = run(scope, gradients, all_gather_rule(scope.group, is_coalesced));
                if (op == ReduceOp::kSum) return results;
                for (at::Tensor& result : results) result = result / scope.group.size();
                return results;
              }};
}

// all_to_all

Rule all_to_all_rule(const GroupHandle& group, const std::vector<int64_t>& output_sizes,
                     const std::vector<int64_t>& input_sizes) {
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

// collectives with a root

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
                // On ranks other than the root, the backend may use the buffer for partial sums.
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

}  // namespace ddp::functional
