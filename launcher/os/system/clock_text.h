// Times of day as texts.
#pragma once

#include <array>
#include <chrono>
#include <ctime>
#include <string>

namespace launcher {

// "14:03:12" in local time; "2026-11-30 14:03:12" if the day is not today.
inline std::string clock_text(std::chrono::system_clock::time_point time) {
  const std::time_t whole = std::chrono::system_clock::to_time_t(time);
  const std::time_t now = std::time(nullptr);
  std::tm then{};
  std::tm today{};
  ::localtime_r(&whole, &then);
  ::localtime_r(&now, &today);
  const bool is_today = then.tm_yday == today.tm_yday && then.tm_year == today.tm_year;
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), is_today ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &then);
  return text.data();
}

}  // namespace launcher
