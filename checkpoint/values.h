// Plain values that a program keeps beside its model: a best accuracy, a run's name. Stored as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace ddp {

/// A value that is a JSON array, object or null, as text.
struct JsonText {
  std::string text{};
};

/// Values by name: `values["best"] = 0.71; values.get<double>("best")`.
class CheckpointValues {
 public:
  using Value = std::variant<bool, int64_t, double, std::string, JsonText>;

  /// Any integer, floating-point number, text or JsonText.
  template <typename Given>
  void set(const std::string& name, Given&& value) {
    using Plain = std::remove_cvref_t<Given>;
    if constexpr (std::is_same_v<Plain, bool> || std::is_same_v<Plain, JsonText>) {
      values_[name] = value;
    } else if constexpr (std::is_integral_v<Plain>) {
      values_[name] = static_cast<int64_t>(value);
    } else if constexpr (std::is_floating_point_v<Plain>) {
      values_[name] = static_cast<double>(value);
    } else {
      values_[name] = std::string(value);
    }
  }

  bool contains(const std::string& name) const { return values_.count(name) != 0; }

  /// `Wanted` is bool, int64_t, double, std::string or JsonText; a whole number serves as a double. Throws
  /// std::out_of_range when there is no such value and std::invalid_argument when it is of another kind.
  template <typename Wanted>
  Wanted get(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::out_of_range("the checkpoint holds no value named '" + name + "'");
    if (const auto* value = std::get_if<Wanted>(&found->second)) return *value;
    if constexpr (std::is_same_v<Wanted, double>) {
      if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
    }
    throw std::invalid_argument("the checkpoint's value '" + name + "' is of another kind than the one asked for");
  }

  /// The same with a fallback for a value that is not there.
  template <typename Wanted>
  Wanted get(const std::string& name, Wanted fallback) const {
    return contains(name) ? get<Wanted>(name) : fallback;
  }

  const std::map<std::string, Value>& all() const { return values_; }

  /// One JSON object. Throws std::invalid_argument for text that is no UTF-8 or a JsonText that is no JSON; numbers
  /// that JSON does not have (NaN, infinity) become null.
  std::string to_json() const;

  /// Throws std::invalid_argument when `text` is no JSON object.
  static CheckpointValues from_json(std::string_view text);

 private:
  std::map<std::string, Value> values_;
};

}  // namespace ddp
