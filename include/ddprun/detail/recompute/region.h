// The parts of checkpoint() and keep() that their templates need.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ddprun/comm/output_tensors.h"

namespace torch::nn {
class Module;
}

namespace ddp {

/// What checkpoint() compares between the two runs of a region.
enum class DeterminismCheck : std::uint8_t {
  kDefault,  ///< shape, dtype and device of each saved tensor, and that no input or parameter was changed in between
  kNone,     ///< only the number of saved tensors
};

/// Settings of checkpoint(), all optional. Reference: torch.utils.checkpoint.checkpoint.
struct RecomputeOptions {
  /// Whether the second run draws the same random numbers as the first, on the CPU and on the devices of the inputs.
  bool preserve_rng_state = true;
  /// Whether the second run ends, by an exception, when it has saved the last tensor that is needed.
  bool early_stop = true;
  /// What is compared between the two runs.
  DeterminismCheck determinism_check = DeterminismCheck::kDefault;
  /// Whether an error names the first operator in which the two runs differ. This needs a callback per operator.
  bool debug = false;
  /// Modules whose buffers (BatchNorm's running statistics) the second run does not change. In Python, they are updated
  /// twice.
  std::vector<std::shared_ptr<torch::nn::Module>> update_buffers_once = {};
  /// Operators whose results the region stores, so that the second run does not compute them again. Choose operators
  /// that are expensive to compute and have small results, such as {"aten::addmm", "aten::convolution"}. If an operator
  /// has an overload name, include it: "aten::add.Tensor". Autograd must see the operators directly, so operators that
  /// consist of others (aten::linear) are not supported. Operators that change or return the memory of an argument are
  /// not supported either. Afterwards, each call of these operators, anywhere in the process, takes about 0.5
  /// microseconds longer. Reference: torch.utils.checkpoint.create_selective_checkpoint_contexts with a list.
  std::vector<std::string> must_save = {};
};

/// Thrown by the backward if the two runs of a region differ, or if the region cannot run again.
class RecomputeError : public std::runtime_error {
 public:
  /// Makes an error with this text.
  explicit RecomputeError(const std::string& what) : std::runtime_error(what) {}
};

namespace recompute {
class Frame;
class SavedTensorMode;
}  // namespace recompute

namespace detail {

/// Calls a callable, or forward() of a module. It does not use a holder's operator(), which returns nothing if
/// forward() is a template, as in Sequential.
template <typename Function, typename... Args>
decltype(auto) call_region(Function& function, Args&... args) {
  if constexpr (requires { function->forward(args...); }) {
    return function->forward(args...);
  } else if constexpr (requires { function.forward(args...); }) {
    return function.forward(args...);
  } else {
    return std::invoke(function, args...);
  }
}

/// Returns what a region stores for an argument: its value or, for a view, a copy of its elements, because the view may
/// no longer be valid in the backward.
template <typename T>
std::decay_t<T> kept_argument(T&& value) {
  return std::forward<T>(value);
}
template <typename T>
std::vector<T> kept_argument(c10::ArrayRef<T> view) {
  return view.vec();
}
template <typename T, size_t kSize>
std::vector<std::remove_cv_t<T>> kept_argument(std::span<T, kSize> view) {
  return {view.begin(), view.end()};
}
template <typename T>
using KeptArgument = decltype(kept_argument(std::declval<T>()));

/// Satisfied by a range that owns its items. This excludes ranges that return proxies, such as c10::List, because
/// copies of these share their items.
template <typename T>
concept RangeOfItems = std::ranges::forward_range<T&> && std::is_lvalue_reference_v<std::ranges::range_reference_t<T&>>;

/// Calls `found` for each tensor that `value` owns. Tensors that pointers and views refer to belong to the program and
/// are excluded.
template <typename T, typename Found>
void for_each_own_tensor(T& value, const Found& found) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_base_of_v<at::Tensor, Plain> && sizeof(Plain) == sizeof(at::Tensor)) {
    if constexpr (!std::is_const_v<T>) found(value);
  } else if constexpr (HasVisitTensors<T>) {
    visit_tensors(value, [&](auto& part) { for_each_own_tensor(part, found); });
  } else if constexpr (WithoutTensors<Plain> || PointerLike<Plain> || std::ranges::view<Plain>) {
    return;
  } else if constexpr (is_variant<Plain>) {
    std::visit([&](auto& part) { for_each_own_tensor(part, found); }, value);
  } else if constexpr (TupleLike<Plain>) {
    std::apply([&](auto&... parts) { (for_each_own_tensor(parts, found), ...); }, value);
  } else if constexpr (RangeOfItems<T>) {
    if constexpr (!WithoutTensors<std::ranges::range_value_t<T&>>) {
      for (auto& item : value) for_each_own_tensor(item, found);
    }
  } else if constexpr (OptionalLike<T>) {
    if (value.has_value()) for_each_own_tensor(*value, found);
  } else if constexpr (Named<T>) {
    auto&& part = value.value();
    for_each_own_tensor(part, found);
  }
}

/// Whether for_each_own_tensor() finds every tensor of a T. A trivially copyable type contains no tensors.
template <typename T>
constexpr bool owns_its_tensors() {
  if constexpr (std::is_base_of_v<at::Tensor, T> || HasVisitTensors<T> || WithoutTensors<T>) {
    return true;
  } else if constexpr (PointerLike<T> || std::ranges::view<T>) {
    return false;
  } else if constexpr (is_variant<T>) {
    return []<typename... Parts>(std::type_identity<std::variant<Parts...>>) {
      return (owns_its_tensors<Parts>() && ...);
    }(std::type_identity<T>{});
  } else if constexpr (TupleLike<T>) {
    return []<size_t... kPart>(std::index_sequence<kPart...>) {
      return (owns_its_tensors<std::remove_cv_t<std::tuple_element_t<kPart, T>>>() && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  } else if constexpr (RangeOfItems<T>) {
    using Item = std::ranges::range_value_t<T&>;
    if constexpr (!tells_all<T> || std::is_same_v<Item, T>)
      return false;
    else
      return owns_its_tensors<Item>();
  } else if constexpr (OptionalLike<T>) {
    return owns_its_tensors<std::remove_cvref_t<decltype(*std::declval<T&>())>>();
  } else if constexpr (Named<T>) {
    return owns_its_tensors<std::remove_cvref_t<decltype(std::declval<T&>().value())>>();
  } else {
    return std::is_trivially_copyable_v<T>;
  }
}

/// Moves the tensors out of `value`, in order.
template <typename T>
std::vector<at::Tensor> take_tensors(T& value) {
  std::vector<at::Tensor> tensors;
  for_each_own_tensor(value, [&tensors](auto& tensor) { tensors.push_back(std::exchange(tensor, {})); });
  return tensors;
}

/// Moves the tensors back.
template <typename T>
void put_tensors(T& value, std::vector<at::Tensor> tensors) {
  size_t next = 0;
  for_each_own_tensor(value, [&](auto& tensor) { static_cast<at::Tensor&>(tensor) = std::move(tensors.at(next++)); });
}

/// The first run of a region's function. It stores what the second run and the backward need.
class Region {
 public:
  using Recompute = std::function<void(std::vector<at::Tensor> inputs)>;

  /// `recompute` runs the function again on `inputs`, which are then detached.
  Region(const RecomputeOptions& options, std::vector<at::Tensor> inputs, Recompute recompute);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// Runs the function for the first time.
  void run(const std::function<void()>& function);

 private:
  std::vector<at::Tensor> inputs_;
  std::shared_ptr<recompute::Frame> frame_;
};

/// One call of keep(), in the first or second run of a region, or outside a region.
class KeptResults {
 public:
  /// Determines which of these applies to the calling thread.
  KeptResults();
  ~KeptResults();
  KeptResults(const KeptResults&) = delete;
  KeptResults& operator=(const KeptResults&) = delete;

  /// Whether this is the second run, in which the results are already known.
  bool are_known() const { return is_second_run_; }
  /// Whether this is the first run, in which the results must be stored.
  bool are_wanted() const { return is_first_run_; }
  /// Returns the result without its tensors.
  const std::any& structure() const;
  /// Throws RecomputeError, because the two runs gave results of different types.
  [[noreturn]] void refuse_other_type() const;
  /// Returns the tensors of the result, without the graph from `inputs` to them.
  std::vector<at::Tensor> tensors(const std::vector<at::Tensor>& inputs) const;
  /// Runs the function, and saves tensors as outside a region.
  template <typename Function>
  auto run(const Function& function) {
    const PlainScope scope;
    return function();
  }
  /// Stores the results of the first run.
  void store(std::vector<at::Tensor> tensors, std::any structure);

 private:
  /// During its lifetime, tensors are saved as outside a region.
  class PlainScope {
   public:
    PlainScope();
    ~PlainScope();
    PlainScope(const PlainScope&) = delete;
    PlainScope& operator=(const PlainScope&) = delete;

   private:
    std::unique_ptr<recompute::SavedTensorMode> mode_;
  };

  recompute::Frame* frame_ = nullptr;
  bool is_first_run_ = false;
  bool is_second_run_ = false;
  size_t index_ = 0;
};

}  // namespace detail
}  // namespace ddp
