// The text of a progress bar: values in, one line out. The layout is that of Python's tqdm.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// What a line of progress shows.
struct ProgressState {
  std::string description{};
  int64_t done = 0;                ///< steps so far
  std::optional<int64_t> total{};  ///< steps in all; unknown without
  std::chrono::duration<double> elapsed{};
  std::optional<double> rate{};  ///< steps per second
  std::string unit = "it";
  std::string postfix{};
};

/// "train:  25%|███   | 2/8 [00:01<00:03,  2.00it/s, loss=0.5]", filled up to `width` columns by the bar. Without a
/// total "train: 2it [00:01,  2.00it/s, loss=0.5]". `width` is in columns of a terminal, of which a wide character
/// takes two; 0 leaves out the bar, and a line is never longer than `width` else. Control characters in the texts come
/// out as spaces.
std::string format_progress(const ProgressState& state, int64_t width);

/// "01:05", "1:02:03".
std::string format_interval(std::chrono::duration<double> interval);

/// A number in at most about three significant digits, as tqdm shows it in a postfix: 0.5, 0.123, 1.2e-5.
std::string format_short(double value);

}  // namespace ddp
