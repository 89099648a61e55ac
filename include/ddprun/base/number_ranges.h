// Which numbers an option takes, for CLI11 (https://github.com/CLIUtils/CLI11), which the program has to bring. CLI11's
// own ranges let nan pass, and name the largest number of all digit by digit.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>

namespace ddp {

namespace detail {

/// Accepts the texts of numbers from `least` to `most`, which messages call `what` and the program's help `shown`.
template <typename T>
CLI::Validator number_validator(const std::string& what, T least, T most, const std::string& shown = "") {
  return {[=](std::string& text) {
            T value{};
            const bool is_number = CLI::detail::lexical_cast(text, value);
            const bool is_too_large = is_number && value == std::numeric_limits<T>::max();  // or is read as this one
            if (is_number && value >= least && value <= most && !is_too_large) return std::string();
            const bool has_bound = most != std::numeric_limits<T>::max();
            return "expected a " + what + (is_too_large && !has_bound ? " that 64 bits hold" : "") + ", got '" + text +
                   "'";
          },
          shown, "number"};
}

template <typename T>
CLI::Validator range_validator(const std::string& what, T least, T most) {
  const std::string from = CLI::detail::to_string(least);
  if (most != std::numeric_limits<T>::max()) {
    const std::string range = "[" + from + " - " + CLI::detail::to_string(most) + "]";
    return number_validator(what + " in " + range, least, most, range);
  }
  return number_validator(least == std::numeric_limits<T>::lowest() ? what : what + " >= " + from, least, most);
}

}  // namespace detail

/// Accepts the finite numbers from `least` to `most`.
inline CLI::Validator finite(double least = std::numeric_limits<double>::lowest(),
                             double most = std::numeric_limits<double>::max()) {
  return detail::range_validator("finite number", least, most);
}

/// Accepts the finite numbers above `bound`.
inline CLI::Validator above(double bound) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return detail::number_validator("finite number > " + CLI::detail::to_string(bound), std::nextafter(bound, kMost),
                                  kMost);
}

/// Accepts the whole numbers from `least` to `most`.
inline CLI::Validator whole(int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) {
  return detail::range_validator("whole number", least, most);
}

/// Accepts the numbers that 64 bits without sign hold, in decimal digits: CLI11 takes -1 and what is too large for one.
inline CLI::Validator unsigned64() {
  return {[](std::string& text) {
            uint64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && stop == end) return std::string();
            return "expected a whole number in [0 - " + std::to_string(std::numeric_limits<uint64_t>::max()) +
                   "], got '" + text + "'";
          },
          "", "number"};
}

}  // namespace ddp
