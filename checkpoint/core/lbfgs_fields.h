// LBFGS's state in files: it belongs to the optimizer's first parameter, and each list of tensors is stored one by one,
// as `state.<parameter>.old_dirs.0`, `.1` … No LibTorch.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ddp {

/// A tensor of a list.
struct ListItem {
  std::string_view list{};
  size_t index = 0;
};

/// What `field` stands for if it is "<list>.<index>" of one of LBFGS's lists.
inline std::optional<ListItem> list_item(std::string_view field) {
  const auto dot = field.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto list = field.substr(0, dot), number = field.substr(dot + 1);
  if (list != "old_dirs" && list != "old_stps" && list != "ro" && list != "al") return std::nullopt;
  ListItem item{.list = list};
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), item.index);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return item;
}

/// The field of `name`, which is "state.<parameter>.<field>".
inline std::string_view field_of(std::string_view name) {
  const auto last = name.rfind('.');
  const auto before = last == 0 || last == std::string_view::npos ? last : name.rfind('.', last - 1);
  if (before != std::string_view::npos && list_item(name.substr(before + 1))) return name.substr(before + 1);
  return name.substr(last + 1);
}

}  // namespace ddp
