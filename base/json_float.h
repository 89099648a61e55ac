// Numbers that JSON does not have: infinities and NaN are written as {"__float__": "inf"}, whose text Python's float()
// reads. No LibTorch.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace ddp {

inline constexpr const char* kJsonFloatKey = "__float__";

/// "inf", "-inf" or "nan"; meaningless for a finite value.
inline const char* non_finite_name(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

/// The value of such a name; nothing for any other text.
inline std::optional<double> non_finite_value(std::string_view name) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (name == "inf") return kInfinity;
  if (name == "-inf") return -kInfinity;
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

/// A value of a JSON library: the number itself where JSON has it.
template <typename Json>
Json json_float(double value) {
  if (std::isfinite(value)) return value;
  Json named = Json::object();
  named[kJsonFloatKey] = non_finite_name(value);
  return named;
}

/// The number that json_float() made an object of; nothing for any other value.
template <typename Json>
std::optional<double> named_float(const Json& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains(kJsonFloatKey)) return std::nullopt;
  const auto& name = value.at(kJsonFloatKey);
  if (!name.is_string()) return std::nullopt;
  return non_finite_value(name.template get_ref<const typename Json::string_t&>());
}

}  // namespace ddp
