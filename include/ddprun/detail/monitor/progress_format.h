// Formats the text line of a progress bar. The layout is that of Python's tqdm.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// The values that a progress line shows.
struct ProgressState {
  std::string description{};
  int64_t done = 0;                ///< steps so far
  std::optional<int64_t> total{};  ///< total number of steps; empty if it is unknown
  std::chrono::duration<double> elapsed{};
  std::optional<double> rate{};  ///< steps per second
  std::string unit = "it";
  std::string postfix{};
};

/// Returns a line such as "train:  25%|███   | 2/8 [00:01<00:03,  2.00it/s, loss=0.5]", in which the bar fills the
/// remaining space up to `width` columns. Without a total, the line is "train: 2it [00:01,  2.00it/s, loss=0.5]".
/// `width` is in columns of a terminal; a wide character occupies two. If it is 0, the bar is omitted; otherwise a line
/// is never longer than `width`. Control characters in the texts are replaced by spaces.
std::string format_progress(const ProgressState& state, int64_t width);

/// Returns a text such as "01:05" or "1:02:03".
std::string format_interval(std::chrono::duration<double> interval);

/// Returns a number with at most about three significant digits, as tqdm shows it in a postfix: 0.5, 0.123, 1.2e-5.
std::string format_short(double value);

}  // namespace ddp
