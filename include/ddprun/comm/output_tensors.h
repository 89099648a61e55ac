// Finds the tensors in the arguments and results of a model's forward, whatever their types. DistributedDataParallel
// uses them to find unused parameters; mixed precision casts them.
//
// Tensors, std::optional, pointers, pairs, tuples, variants, and ranges (vectors, arrays, maps, OrderedDict …) of these
// are known. For a custom type, also for one that is a range or a pointer and has other members, define in its
// namespace
//
//     template <typename Visit>
//     void visit_tensors(MyOutput& output, Visit&& visit) { visit(output.logits); visit(output.losses); }
//
// which calls `visit` for each member that is or contains a tensor, by reference; a member may be of any known type.
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
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

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
concept PointerLike = (std::is_pointer_v<T> && !std::is_void_v<std::remove_pointer_t<T>>) || requires(T& value) {
  typename T::element_type;
  {static_cast<bool>(value)};
  *value;
};

template <typename T>
inline constexpr bool is_variant = false;
template <typename... Parts>
inline constexpr bool is_variant<std::variant<Parts...>> = true;

template <typename T>
inline constexpr bool is_template = false;
template <template <typename...> typename Template, typename... Parts>
inline constexpr bool is_template<Template<Parts...>> = true;
template <template <typename, auto> typename Template, typename Part, auto kNumber>
inline constexpr bool is_template<Template<Part, kNumber>> = true;

/// False for a class that is not a template, such as one derived from std::vector: it may have members besides the
/// elements of its range or the object of its pointer.
template <typename T>
inline constexpr bool tells_all = !std::is_class_v<T> || is_template<T>;

template <typename T>
concept Named = requires(T& item) {  // torch::OrderedDict::Item
  item.key();
  item.value();
};

template <typename T>
concept WithoutTensors = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::monostate> ||
    std::is_same_v<T, std::nullopt_t> || std::convertible_to<T&, std::string_view>;

template <typename T, typename Found>
bool for_each_tensor_in_range(T& range, const Found& found);
template <typename T, typename Found>
bool for_each_tensor_of_pointer(T& pointer, const Found& found);

}  // namespace detail

/// Calls `found(tensor)` for each at::Tensor in `value`, by reference: it may be replaced. Const parts are walked as
/// well, for visitors that only look. Returns false when a part has an unknown type (see above); some or all tensors in
/// that part are then not found.
template <typename T, typename Found>
bool for_each_tensor(T& value, const Found& found) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_base_of_v<at::Tensor, Plain> && sizeof(Plain) == sizeof(at::Tensor)) {
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
  } else if constexpr (std::ranges::forward_range<T&>) {
    return detail::for_each_tensor_in_range(value, found);
  } else if constexpr (detail::OptionalLike<T> || detail::PointerLike<Plain>) {
    return detail::for_each_tensor_of_pointer(value, found);
  } else if constexpr (detail::Named<T>) {
    auto&& part = value.value();
    return for_each_tensor(part, found);
  } else {
    return false;
  }
}

namespace detail {

template <typename T, typename Found>
bool for_each_tensor_in_range(T& range, const Found& found) {
  using Plain = std::remove_cv_t<T>;
  using Part = std::ranges::range_value_t<T&>;
  if constexpr (WithoutTensors<Part>) {
    return tells_all<Plain>;
  } else if constexpr (std::is_same_v<Part, Plain>) {
    return false;  // such as a path, whose parts are paths
  } else {
    bool known = tells_all<Plain>;
    for (auto&& part : range) known = for_each_tensor(part, found) && known;
    return known;
  }
}

/// `pointer` may be a std::optional.
template <typename T, typename Found>
bool for_each_tensor_of_pointer(T& pointer, const Found& found) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (OptionalLike<T>) {
    if (!pointer.has_value()) return tells_all<Plain>;
  } else {
    if (!pointer) return tells_all<Plain>;
  }
  auto&& part = *pointer;
  return for_each_tensor(part, found) && tells_all<Plain>;
}

}  // namespace detail

/// The tensors in a forward's output.
struct OutputTensors {
  std::vector<at::Tensor> tensors{};  ///< the tensors that can be replaced, in the order of for_each_tensor()
  std::vector<at::Tensor> fixed{};    ///< the tensors that the output holds as const
  bool known = true;                  ///< whether all tensors were found
};

/// Collects the tensors of `output`, which is walked as for_each_tensor() does.
template <typename Output>
OutputTensors find_tensors(Output& output) {
  OutputTensors result;
  result.known = for_each_tensor(output, [&](auto& tensor) {
    constexpr bool kIsConst = std::is_const_v<std::remove_reference_t<decltype(tensor)>>;
    (kIsConst ? result.fixed : result.tensors).push_back(tensor);
  });
  return result;
}

/// Replaces tensor i of find_tensors()'s result in `output` by replacements[i], if that is defined. Returns false if a
/// replacement had no effect because only a copy of the tensor was visited (by a visit_tensors() that takes its
/// argument by value, or a view that computes its elements).
template <typename Output>
bool replace_tensors(Output& output, const std::vector<at::Tensor>& replacements) {
  std::unordered_set<const c10::TensorImpl*> given;
  const auto for_each_place = [&](const auto& use) {
    size_t next = 0;
    for_each_tensor(output, [&](auto& tensor) {
      if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) {
        if (next < replacements.size() && replacements[next].defined()) use(tensor, replacements[next]);
        ++next;
      }
    });
  };
  for_each_place([&](at::Tensor& tensor, const at::Tensor& replacement) {
    tensor = replacement;
    given.insert(replacement.unsafeGetTensorImpl());
  });
  bool all_stayed = true;
  // One tensor may have been visited twice, through two pointers to it.
  for_each_place([&](const at::Tensor& tensor, const at::Tensor& /*replacement*/) {
    all_stayed = all_stayed && given.contains(tensor.unsafeGetTensorImpl());
  });
  return all_stayed;
}

}  // namespace ddp
