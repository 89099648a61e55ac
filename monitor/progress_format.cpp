#include "ddprun/detail/monitor/progress_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "base/text_width.h"
#include "base/utf8.h"

namespace ddp {
namespace {

constexpr double kMaxIntervalSeconds = 1e9;  // seconds

std::string printf_double(const char* format, double value) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string printable(const std::string& text) {
  std::string clean;
  for (std::string_view rest = text; !rest.empty();) {
    const detail::Utf8Character character = detail::first_character(rest);
    const char32_t code = character.code;
    const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
    clean += is_control ? std::string_view(" ") : rest.substr(0, character.length);
    rest.remove_prefix(character.length);
  }
  return detail::valid_utf8(clean);
}

std::string format_rate(const ProgressState& state) {
  const std::string unit = printable(state.unit);
  if (!state.rate || !(*state.rate > 0) || !std::isfinite(*state.rate))
    return std::string("?").append(unit).append("/s");
  if (*state.rate < 1) return printf_double("%5.2f", 1 / *state.rate) + "s/" + unit;
  return printf_double("%5.2f", *state.rate) + unit + "/s";
}

/// Returns a bar that is `columns` wide. Its end uses Unicode's block elements, which have a resolution of an eighth of
/// a column.
std::string bar(double fraction, int64_t columns) {
  constexpr std::array<std::string_view, 8> kPart = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int64_t>(fraction * static_cast<double>(columns) * 8);
  std::string text;
  for (int64_t i = 0; i < eighths / 8; ++i) text += "█";
  if (eighths / 8 < columns) {
    text += kPart[static_cast<size_t>(eighths % 8)];
    text.append(static_cast<size_t>(columns - eighths / 8 - 1), ' ');
  }
  return text;
}

}  // namespace

std::string format_interval(std::chrono::duration<double> interval) {
  const auto seconds = static_cast<long long>(std::clamp(interval.count(), 0.0, kMaxIntervalSeconds));
  std::array<char, 64> text{};
  if (seconds >= 3600) {
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", seconds / 3600, seconds / 60 % 60, seconds % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%02lld:%02lld", seconds / 60, seconds % 60);
  }
  return text.data();
}

std::string format_short(double value) {
  std::string rounded = printf_double("%.3g", value);
  const size_t exponent = rounded.find('e');
  if (exponent != std::string::npos && rounded[exponent + 2] == '0') rounded.erase(exponent + 2, 1);
  std::array<char, 64> exact{};
  const auto [end, error] = std::to_chars(exact.data(), exact.data() + exact.size(), value);
  const std::string whole(exact.data(), error == std::errc() ? end : exact.data());
  return whole.empty() || rounded.size() < whole.size() ? rounded : whole;
}

std::string format_progress(const ProgressState& state, int64_t width) {
  std::string left = printable(state.description);
  if (!left.empty()) left += ": ";
  const std::string elapsed = format_interval(state.elapsed);
  std::string right = format_rate(state);
  if (!state.postfix.empty()) right.append(", ").append(printable(state.postfix));
  if (!state.total || *state.total < state.done) {
    std::string line = left + std::to_string(state.done) + printable(state.unit) + " [" + elapsed + ", " + right + "]";
    return width > 0 ? cut_to_columns(line, width) : line;
  }
  const double fraction = *state.total == 0 ? 1.0 : static_cast<double>(state.done) / static_cast<double>(*state.total);
  std::string remaining = "?";
  if (state.rate && *state.rate > 0) {
    remaining =
        format_interval(std::chrono::duration<double>(static_cast<double>(*state.total - state.done) / *state.rate));
  }
  left += printf_double("%3.0f", 100 * fraction) + "%";
  // (The parts are appended one by one, because g++ 12 warns of an overlapping copy in a literal + std::string.)
  std::string counts = " ";
  counts.append(std::to_string(state.done)).append("/").append(std::to_string(*state.total));
  right = counts.append(" [").append(elapsed).append("<").append(remaining).append(", ").append(right).append("]");
  if (width <= 0) return left + right;
  const int64_t room = width - text_columns(left) - text_columns(right) - 2;
  if (room < 1) return cut_to_columns(left + right, width);
  return left + "|" + bar(fraction, room) + "|" + right;
}

}  // namespace ddp
