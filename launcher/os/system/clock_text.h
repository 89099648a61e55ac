// Times of day as texts.
#pragma once

#include <array>
#include <chrono>
#include <ctime>
#include <string>
#include <string_view>

namespace launcher {

// "2026-11-30 14:03:12" in local time.
inline std::string date_text(std::chrono::system_clock::time_point time) {
  const std::time_t whole = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::localtime_r(&whole, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

// The same without the day if that is today: "14:03:12".
inline std::string clock_text(std::chrono::system_clock::time_point time) {
  constexpr std::size_t kDayLength = std::string_view("2026-11-30 ").size();
  const std::string text = date_text(time);
  const std::string now = date_text(std::chrono::system_clock::now());
  return text.compare(0, kDayLength, now, 0, kDayLength) == 0 ? text.substr(kDayLength) : text;
}

}  // namespace launcher
