// Plain values that a program keeps beside its model: a best accuracy, a run's name. Stored as JSON.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace ddp {

/// A value that is a JSON array, object or null, as text.
struct JsonText {
  std::string text{};
};

/// Values by name: `values["best"] = 0.71; values.get<double>("best")`.
class CheckpointValues {
 public:
  /// A whole number is an int64_t where that holds it, else a uint64_t.
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string, JsonText>;

  /// Any integer, floating-point number, text or JsonText.
  template <typename Given>
  void set(const std::string& name, Given&& value) {
    using Plain = std::remove_cvref_t<Given>;
    if constexpr (std::is_same_v<Plain, bool> || std::is_same_v<Plain, JsonText>) {
      values_[name] = value;
    } else if constexpr (std::is_integral_v<Plain> && (std::is_same_v<Plain, char> || std::is_same_v<Plain, wchar_t>)) {
      values_[name] = static_cast<int64_t>(value);  // not numbers to std::in_range
    } else if constexpr (std::is_integral_v<Plain>) {
      if (std::in_range<int64_t>(value)) {
        values_[name] = static_cast<int64_t>(value);
      } else {
        values_[name] = static_cast<uint64_t>(value);
      }
    } else if constexpr (std::is_floating_point_v<Plain>) {
      values_[name] = static_cast<double>(value);
    } else {
      values_[name] = std::string(value);
    }
  }

  bool contains(const std::string& name) const { return values_.count(name) != 0; }

  /// `Wanted` is bool, int64_t, uint64_t, double, std::string or JsonText; a whole number serves as a double. Throws
  /// std::out_of_range when there is no such value and std::invalid_argument when it is of another kind, or a whole
  /// number that `Wanted` cannot hold.
  template <typename Wanted>
  Wanted get(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::out_of_range("the checkpoint holds no value named '" + name + "'");
    if (const auto* value = std::get_if<Wanted>(&found->second)) return *value;
    if constexpr (std::is_same_v<Wanted, double>) {
      if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
      if (const auto* whole = std::get_if<uint64_t>(&found->second)) return static_cast<double>(*whole);
    }
    if constexpr (std::is_same_v<Wanted, int64_t>) {
      if (const auto* whole = std::get_if<uint64_t>(&found->second)) refuse_number(name, std::to_string(*whole));
    }
    if constexpr (std::is_same_v<Wanted, uint64_t>) {
      if (const auto* whole = std::get_if<int64_t>(&found->second)) {
        if (*whole < 0) refuse_number(name, std::to_string(*whole));
        return static_cast<uint64_t>(*whole);
      }
    }
    throw std::invalid_argument("the checkpoint's value '" + name + "' is of another kind than the one asked for");
  }

  /// The same with a fallback for a value that is not there.
  template <typename Wanted>
  Wanted get(const std::string& name, Wanted fallback) const {
    return contains(name) ? get<Wanted>(name) : fallback;
  }

  const std::map<std::string, Value>& all() const { return values_; }

  /// One JSON object. Numbers that JSON does not have become {"__float__": "inf"}, "-inf" or "nan". Throws
  /// std::invalid_argument for text that is no UTF-8 or a JsonText that is no JSON.
  std::string to_json() const;

  /// What to_json() wrote. Throws std::invalid_argument when `text` is no JSON object, and for whole numbers, however
  /// deep, that no 64 bits hold.
  static CheckpointValues from_json(std::string_view text);

 private:
  [[noreturn]] static void refuse_number(const std::string& name, const std::string& number) {
    throw std::invalid_argument("the checkpoint's value '" + name + "' is " + number +
                                ", which the type that was asked for does not hold");
  }

  std::map<std::string, Value> values_;
};

}  // namespace ddp
