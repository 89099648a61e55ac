// Joins texts into lists such as "a, b, c".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace ddp::detail {

struct AsText {
  template <typename Item>
  std::string operator()(const Item& item) const {
    if constexpr (std::is_arithmetic_v<Item>) return std::to_string(item);
    if constexpr (!std::is_arithmetic_v<Item>) return std::string(item);
  }
};

/// Joins the texts of the items with `between`. The last item is preceded by `last` instead, if it is given.
template <typename Items, typename TextOf = AsText>
std::string joined(const Items& items, std::string_view between = ", ", TextOf text_of = {},
                   std::string_view last = {}) {
  std::string text;
  std::size_t left = std::size(items);
  for (const auto& item : items) {
    if (left < std::size(items)) text += left == 1 && !last.empty() ? last : between;
    text += text_of(item);
    --left;
  }
  return text;
}

/// Joins at most `most` items, such as "a, b and 3 more".
template <typename Items, typename TextOf = AsText>
std::string joined_some(const Items& items, std::size_t most, TextOf text_of = {}) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& item : items) {
    if (shown == most) return text + " and " + std::to_string(std::size(items) - shown) + " more";
    text.append(shown++ == 0 ? "" : ", ").append(text_of(item));
  }
  return text;
}

/// Appends an item to a list that is built step by step.
inline void append_item(std::string& list, std::string_view item, std::string_view between = ", ") {
  list.append(list.empty() ? "" : between).append(item);
}

}  // namespace ddp::detail
