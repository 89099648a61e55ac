// Finds the tensors in whatever a model's forward takes or returns: DistributedDataParallel looks for unused parameters
// there, mixed precision casts them.
//
// Tensors, std::optional, pointers, pairs, tuples, variants, and ranges (vectors, arrays, maps, OrderedDict …) of these
// are known. For a type of your own, define in its namespace
//
//     template <typename Visit>
//     void visit_tensors(MyOutput& output, Visit&& visit) { visit(output.logits); visit(output.losses); }
//
// which calls `visit` for each member that is or contains a tensor; a member may be of any known type.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace ddp {

namespace detail {

struct AnyVisitor {
  template <typename Part>
  void operator()(Part& /*part*/) const {}
};

template <typename T>
concept HasVisitTensors = requires(T& value, const AnyVisitor& visit) {
  visit_tensors(value, visit);
};

template <typename T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <typename T>
concept OptionalLike = requires(T& value) {
  { value.has_value() } -> std::convertible_to<bool>;
  *value;
};

template <typename T>
concept PointerLike = std::is_pointer_v<T> || requires(T& value) {
  typename T::element_type;
  {static_cast<bool>(value)};
  *value;
};

template <typename T>
inline constexpr bool is_variant = false;
template <typename... Parts>
inline constexpr bool is_variant<std::variant<Parts...>> = true;

template <typename T>
concept Named = requires(T& item) {  // torch::OrderedDict::Item
  item.key();
  item.value();
};

template <typename T>
concept WithoutTensors = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::monostate> ||
    std::is_same_v<T, std::nullopt_t> || std::convertible_to<T&, std::string_view>;

}  // namespace detail

/// Calls `found(tensor)` for each at::Tensor in `value`, by reference: it may be replaced. Const parts are walked as
/// well, for visitors that only look. Returns false when a part has a type that is not known (see above), whose tensors
/// are then missed.
template <typename T, typename Found>
bool for_each_tensor(T& value, const Found& found) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_base_of_v<at::Tensor, Plain>) {
    found(value);
    return true;
  } else if constexpr (detail::HasVisitTensors<T>) {
    bool known = true;
    visit_tensors(value, [&](auto& part) { known = for_each_tensor(part, found) && known; });
    return known;
  } else if constexpr (detail::WithoutTensors<Plain>) {
    return true;
  } else if constexpr (detail::is_variant<Plain>) {
    return std::visit([&](auto& part) { return for_each_tensor(part, found); }, value);
  } else if constexpr (detail::TupleLike<Plain>) {
    return std::apply([&](auto&... parts) { return (for_each_tensor(parts, found) & ... & true); }, value);
  } else if constexpr (std::ranges::input_range<T&>) {
    bool known = true;
    for (auto&& part : value) known = for_each_tensor(part, found) && known;
    return known;
  } else if constexpr (detail::OptionalLike<T>) {
    return !value.has_value() || for_each_tensor(*value, found);
  } else if constexpr (detail::PointerLike<Plain> && !std::is_void_v<std::remove_pointer_t<Plain>>) {
    return !value || for_each_tensor(*value, found);
  } else if constexpr (detail::Named<T>) {
    return for_each_tensor(value.value(), found);
  } else {
    return false;
  }
}

}  // namespace ddp
