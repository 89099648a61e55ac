// The prefix of error messages in code without a process group, and numbers formatted as in Python. Does not use
// LibTorch.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <exception>
#include <string>

#include <ddprun/base/rank_info.h>

#include "base/job.h"

namespace ddp {

/// Returns "rank 1 of 2: " from the ThreadJob of the thread or the variables of the launcher. Empty if these contradict
/// each other, which init_process_group() reports.
inline std::string rank_prefix() {
  if (const auto job = thread_job()) {
    RankInfo info;
    info.rank = job->rank;
    info.world_size = job->size;
    return who(info) + ": ";
  }
  try {
    return who(rank_info_from_environment()) + ": ";
  } catch (const std::exception&) {
    return "";
  }
}

/// Formats the number as Python's f-strings do: 0.1, 1.0, 1e-05, nan.
inline std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> buffer{};
  const auto* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                  is_plain ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  std::string text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace ddp
