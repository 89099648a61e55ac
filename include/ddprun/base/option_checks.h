// Checks of command-line options for CLI11 (https://github.com/CLIUtils/CLI11), which the program must provide. They
// check ranges of numbers (CLI11's own validators accept nan, and print the largest number of a type in full), and
// whether output files and folders can be written.
#pragma once

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include <ddprun/base/rank_info.h>

namespace ddp {

namespace detail {

/// Accepts numbers from `least` to `most`. Error messages call such a number `what`; the program's help shows it as
/// `shown`.
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
  constexpr double kMax = std::numeric_limits<double>::max();
  return detail::number_validator("finite number > " + CLI::detail::to_string(bound), std::nextafter(bound, kMax),
                                  kMax);
}

/// Accepts the whole numbers from `least` to `most`.
inline CLI::Validator whole(int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) {
  return detail::range_validator("whole number", least, most);
}

/// Accepts unsigned 64-bit numbers in decimal digits. CLI11 itself would also accept -1 and numbers that are too large.
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

namespace detail {

/// Only rank 0 writes: a folder need not exist on the hosts of other ranks.
inline bool is_writing_rank() {
  try {
    return rank_info_from_environment().rank == 0;
  } catch (const std::exception&) {  // the call that joins the job reports it
    return false;
  }
}

/// The reason why `path`, which does not exist, cannot be created; empty if it can.
inline std::string why_not_made(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  do folder = folder.parent_path();
  while (folder.has_relative_path() && !std::filesystem::exists(std::filesystem::status(folder, error)));
  if (!std::filesystem::is_directory(folder, error)) return folder.string() + " is not a folder";
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? "" : "folder " + folder.string() + " cannot be written";
}

inline std::string why_not_written(const std::filesystem::path& path, bool is_folder) {
  if (path.empty() || !is_writing_rank()) return "";
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return why_not_made(path);
  if (std::filesystem::is_directory(status) != is_folder) return is_folder ? "it is not a folder" : "it is a folder";
  return ::access(path.c_str(), is_folder ? W_OK | X_OK : W_OK) == 0 ? "" : "it cannot be written";
}

inline CLI::Validator output_validator(bool is_folder) {
  return {[=](std::string& text) {
            const std::string why = why_not_written(text, is_folder);
            return why.empty() ? "" : text + ": " + why;
          },
          "", "output"};
}

}  // namespace detail

/// Accepts a folder that rank 0 can write to or create. Also accepts an empty text.
inline CLI::Validator output_folder() {
  return detail::output_validator(/*is_folder=*/true);
}

/// Accepts a file for MetricsFile: one that ends in .csv or .jsonl and that rank 0 can write or create. Also accepts an
/// empty text.
inline CLI::Validator metrics_file() {
  const auto writable = detail::output_validator(/*is_folder=*/false);
  return {[writable](std::string& text) {
            const std::string extension = std::filesystem::path(text).extension().string();
            if (text.empty() || extension == ".csv" || extension == ".jsonl") return writable(text);
            return text + ": expected a file that ends in .csv or .jsonl";
          },
          "", "output"};
}

}  // namespace ddp
