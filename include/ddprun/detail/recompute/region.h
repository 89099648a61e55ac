// What checkpoint() and keep() need of their templates.
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
  kNone,     ///< nothing but the number of saved tensors
};

/// Settings of checkpoint(), all optional. Reference: torch.utils.checkpoint.checkpoint.
struct RecomputeOptions {
  /// Whether the second run draws the random numbers of the first, on the CPU and on each device among the inputs.
  bool preserve_rng_state = true;
  /// Whether the second run ends, by an exception, when it has saved the last tensor that is needed.
  bool early_stop = true;
  /// What is compared between the two runs.
  DeterminismCheck determinism_check = DeterminismCheck::kDefault;
  /// Whether an error names the first operator in which the two runs differ. Costs a callback per operator.
  bool debug = false;
  /// Modules whose buffers (BatchNorm's running statistics) the second run leaves unchanged. Python's are updated
  /// twice.
  std::vector<std::shared_ptr<torch::nn::Module>> update_buffers_once = {};
  /// Operators whose results the region keeps, so that the second run does not call them again: those that cost much to
  /// compute and little to keep, such as {"aten::addmm", "aten::convolution"}; with its overload, "aten::add.Tensor",
  /// where it has one. They must be operators that autograd sees: not those that are made of others (aten::linear), nor
  /// those that change or return the memory of an argument. From then on each call of them, anywhere in the
  /// process, takes some 0.5 microseconds longer. Reference:
  /// torch.utils.checkpoint.create_selective_checkpoint_contexts with a list.
  std::vector<std::string> must_save = {};
};

/// The two runs of a region differ, or it cannot run again: thrown by the backward.
class RecomputeError : public std::runtime_error {
 public:
  /// An error with this text.
  explicit RecomputeError(const std::string& what) : std::runtime_error(what) {}
};

namespace recompute {
class Frame;
class SavedTensorMode;
}  // namespace recompute

namespace detail {

/// Calls a callable, or forward() of a module. A holder's own operator() returns nothing where forward() is a template,
/// as Sequential's.
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

/// What a region keeps of an argument: the value, and of a view its elements, since a view does not last until the
/// backward.
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

/// A range whose items are its own: not one that hands out proxies, such as c10::List, whose copies share their items.
template <typename T>
concept RangeOfItems = std::ranges::forward_range<T&> && std::is_lvalue_reference_v<std::ranges::range_reference_t<T&>>;

/// Calls `found` for each tensor that `value` owns: not for those that pointers and views refer to, which belong to the
/// program.
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

/// Whether for_each_own_tensor() finds every tensor of a T. A type that is copied byte by byte has none.
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

/// Puts them back.
template <typename T>
void put_tensors(T& value, std::vector<at::Tensor> tensors) {
  size_t next = 0;
  for_each_own_tensor(value, [&](auto& tensor) { static_cast<at::Tensor&>(tensor) = std::move(tensors.at(next++)); });
}

/// One run of a region's function in a forward, which makes what its backward needs.
class Region {
 public:
  using Recompute = std::function<void(std::vector<at::Tensor> inputs)>;

  /// `recompute` runs the function again on `inputs`, detached.
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

/// One call of keep(), in a region's first run, in its second, or outside a region.
class KeptResults {
 public:
  /// Looks where the calling thread is.
  KeptResults();
  ~KeptResults();
  KeptResults(const KeptResults&) = delete;
  KeptResults& operator=(const KeptResults&) = delete;

  /// Whether this is the second run: the results are here.
  bool are_known() const { return is_second_run_; }
  /// Whether this is the first run: the results are to be stored.
  bool are_wanted() const { return is_first_run_; }
  /// The result without its tensors.
  const std::any& structure() const;
  /// The two runs gave results of different types: throws RecomputeError.
  [[noreturn]] void refuse_other_type() const;
  /// The result's tensors, without the graph that made them of `inputs`.
  std::vector<at::Tensor> tensors(const std::vector<at::Tensor>& inputs) const;
  /// Runs the function with tensors saved as outside a region.
  template <typename Function>
  auto run(const Function& function) {
    const PlainScope scope;
    return function();
  }
  /// Keeps the results of the first run.
  void store(std::vector<at::Tensor> tensors, std::any structure);

 private:
  /// While it lives, tensors are saved as outside a region.
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
