// Which numbers an option takes, for CLI11 (https://github.com/CLIUtils/CLI11), which the program has to bring. CLI11's
// own ranges let nan pass, and name the largest number of all digit by digit.
#pragma once

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace ddp {

namespace detail {

/// Accepts the texts of numbers between `least` and `most`, which messages call `what`, and of which help says `range`.
template <typename T>
CLI::Validator number_range(const std::string& what, T least, T most, const std::string& range = "") {
  return {[=](std::string& text) {
            T value{};
            const bool is_good = CLI::detail::lexical_cast(text, value) && value >= least && value <= most &&
                                 value < std::numeric_limits<T>::max();  // as which one is read that is too large
            return is_good ? std::string() : "expected a " + what + ", got '" + text + "'";
          },
          range, "number_range"};
}

template <typename T>
CLI::Validator number_range_from(const std::string& what, T least, T most) {
  const std::string from = CLI::detail::to_string(least);
  if (most != std::numeric_limits<T>::max()) {
    const std::string range = "[" + from + " - " + CLI::detail::to_string(most) + "]";
    return number_range(what + " in " + range, least, most, range);
  }
  return number_range(least == std::numeric_limits<T>::lowest() ? what : what + " >= " + from, least, most);
}

}  // namespace detail

/// Accepts the finite numbers from `least` to `most`.
inline CLI::Validator finite(double least = std::numeric_limits<double>::lowest(),
                             double most = std::numeric_limits<double>::max()) {
  return detail::number_range_from("finite number", least, most);
}

/// Accepts the finite numbers above `bound`.
inline CLI::Validator above(double bound) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return detail::number_range("finite number > " + CLI::detail::to_string(bound), std::nextafter(bound, kMost), kMost);
}

/// Accepts the whole numbers from `least` to `most`.
inline CLI::Validator whole(int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) {
  return detail::number_range_from("whole number", least, most);
}

}  // namespace ddp
