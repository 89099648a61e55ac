// Numbers that JSON cannot represent: infinities and NaN are written as {"__float__": "inf"}; Python's float() accepts
// the text. Does not use LibTorch.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace ddp {

inline constexpr const char* kJsonFloatKey = "__float__";

/// Returns "inf", "-inf" or "nan". The value must not be finite.
inline const char* non_finite_name(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

/// The inverse of non_finite_name(); nullopt for any other text.
inline std::optional<double> non_finite_value(std::string_view name) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (name == "inf") return kInfinity;
  if (name == "-inf") return -kInfinity;
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

/// Converts a number to a JSON value: a plain number if it is finite, otherwise the object described above.
template <typename Json>
Json json_float(double value) {
  if (std::isfinite(value)) return value;
  Json named = Json::object();
  named[kJsonFloatKey] = non_finite_name(value);
  return named;
}

/// The inverse of json_float(); nullopt if the value is not such an object.
template <typename Json>
std::optional<double> named_float(const Json& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains(kJsonFloatKey)) return std::nullopt;
  const auto& name = value.at(kJsonFloatKey);
  if (!name.is_string()) return std::nullopt;
  return non_finite_value(name.template get_ref<const typename Json::string_t&>());
}

}  // namespace ddp
