// Activation checkpointing: a region of a forward keeps its inputs instead of the tensors that its backward needs, and
// is run again during the backward. It costs time and saves memory; the gradients have the same bits. Reference:
// torch.utils.checkpoint.checkpoint(use_reentrant=False).
//
//     torch::Tensor forward(torch::Tensor x) {
//       for (auto& block : blocks) x = ddp::checkpoint([&](const torch::Tensor& input) { return block(input); }, x);
//       return head(x);
//     }
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/sequential.h>

#include <any>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddprun/detail/recompute/region.h"

namespace ddp {

/// Runs `function(args...)` and returns its result. Autograd saves none of the tensors that the backward of this call
/// needs. When the backward needs the first of them, `function` is run again.
///
/// `function` is a callable, a module or a module holder, and is copied; objects that it captures by reference must
/// outlive the backward. It must not catch all exceptions, because an exception ends the second run (see
/// RecomputeOptions::early_stop). `args` may be of any type and are copied, so `function` must return its results. The
/// region's inputs are the tensors in values, vectors, tuples, optionals and structures with visit_tensors() (see
/// ddprun/comm/output_tensors.h). Other tensors, including those that pointers refer to, are not inputs: the second run
/// uses the program's tensors. Regions may be nested. Without grad mode it is an ordinary call. It adds no collective,
/// but the collectives of `function` run again in the backward.
///
/// Throws std::runtime_error if `function` changes an input in place. The backward throws RecomputeError if the second
/// run saves different tensors than the first, or if an input or a parameter was changed in between. Reference:
/// torch.utils.checkpoint.checkpoint(use_reentrant=False), which computes wrong values in the last case.
template <typename Function, typename... Args>
requires(!std::is_same_v<std::decay_t<Function>, RecomputeOptions>) auto checkpoint(Function&& function,
                                                                                    Args&&... args);

/// The same with options.
template <typename Function, typename... Args>
auto checkpoint(const RecomputeOptions& options, Function&& function, Args&&... args);

/// Runs `function(args...)` inside a function that checkpoint() runs, stores its results, and does not run it again in
/// the backward. The tensors that its backward needs are saved as without checkpoint(). Outside a region it is an
/// ordinary call. The backward throws RecomputeError if a result was changed in place. The region throws RecomputeError
/// if it runs a backward through a result to `args`. Reference: MUST_SAVE of
/// torch.utils.checkpoint.create_selective_checkpoint_contexts.
template <typename Function, typename... Args>
auto keep(Function&& function, Args&&... args);

/// Runs the modules of `sequential` on `input` in `segments` parts and returns the result. All parts except the last
/// are regions. Each part has size() / segments modules; the last part also has the rest. Throws std::invalid_argument
/// unless 1 <= segments <= size(). Reference: torch.utils.checkpoint.checkpoint_sequential.
at::Tensor checkpoint_sequential(const torch::nn::Sequential& sequential, int64_t segments, at::Tensor input,
                                 const RecomputeOptions& options = {});

/// Whether the calling thread is running a region again. Functions can use this to do something, such as counting, only
/// once.
bool is_recomputing() noexcept;

// --------------------------------------------------------------------------------------------------------------------

template <typename Function, typename... Args>
auto checkpoint(const RecomputeOptions& options, Function&& function, Args&&... args) {
  using Kept = std::tuple<detail::KeptArgument<Args>...>;
  Kept kept{detail::kept_argument(std::forward<Args>(args))...};
  const auto call = [&function](auto&... each) { return detail::call_region(function, each...); };
  using Result = decltype(std::apply(call, kept));
  if (!at::GradMode::is_enabled()) return std::apply(call, kept);
  Kept stripped = kept;
  std::vector<at::Tensor> inputs = detail::take_tensors(stripped);
  const auto again = [saved = std::decay_t<Function>(function), stripped](std::vector<at::Tensor> with) {
    auto run = saved;  // a function object with state starts each run with the state that it had in the forward
    auto arguments = stripped;
    detail::put_tensors(arguments, std::move(with));
    std::apply([&](auto&... each) { static_cast<void>(detail::call_region(run, each...)); }, arguments);
  };
  RecomputeOptions of_region = options;
  // The early stop is an exception; a noexcept function would then end the process.
  if constexpr (std::is_nothrow_invocable_v<std::decay_t<Function>&, detail::KeptArgument<Args>&...>) {
    of_region.early_stop = false;
  }
  detail::Region region(of_region, std::move(inputs), again);
  if constexpr (std::is_void_v<Result>) {
    region.run([&] { std::apply([&](auto&... each) { detail::call_region(function, each...); }, kept); });
  } else {
    std::optional<Result> result;
    region.run(
        [&] { std::apply([&](auto&... each) { result.emplace(detail::call_region(function, each...)); }, kept); });
    return Result(std::move(*result));
  }
}

template <typename Function, typename... Args>
requires(!std::is_same_v<std::decay_t<Function>, RecomputeOptions>) auto checkpoint(Function&& function,
                                                                                    Args&&... args) {
  return checkpoint(RecomputeOptions{}, std::forward<Function>(function), std::forward<Args>(args)...);
}

template <typename Function, typename... Args>
auto keep(Function&& function, Args&&... args) {
  using Result = std::decay_t<decltype(detail::call_region(function, args...))>;
  static_assert(!std::is_void_v<Result>, "keep() keeps the result of the function: it must return one");
  static_assert(detail::owns_its_tensors<Result>(),
                "keep() does not find the tensors of this result: return tensors, or vectors, tuples, optionals and "
                "structures with visit_tensors(), by value");
  detail::KeptResults results;
  if (results.are_known()) {
    const auto* structure = std::any_cast<Result>(&results.structure());
    if (structure == nullptr) results.refuse_other_type();
    Result result = *structure;
    std::vector<at::Tensor> inputs;
    (for_each_tensor(args, [&inputs](const auto& tensor) { inputs.push_back(tensor); }), ...);
    detail::put_tensors(result, results.tensors(inputs));
    return result;
  }
  Result result = results.run([&] { return Result(detail::call_region(function, args...)); });
  if (results.are_wanted()) {
    Result structure = result;
    auto tensors = detail::take_tensors(structure);
    results.store(std::move(tensors), std::move(structure));
  }
  return result;
}

}  // namespace ddp
