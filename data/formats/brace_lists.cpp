#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>

#include "data/formats/shard_format.h"

// Patterns have the same meaning as in braceexpand 0.1.7 from PyPI, which webdataset uses.
namespace ddp {
namespace {

constexpr size_t kMaxNames = 10'000'000;
constexpr int kMaxDepth = 100;
using Names = std::vector<std::string>;

void check_count(size_t count) {
  if (count > kMaxNames) {
    throw std::invalid_argument("expand_shards: the pattern expands to more than 10,000,000 addresses");
  }
}

/// Returns each combination of a name and an ending.
Names product(const Names& names, const Names& endings) {
  check_count(names.size() * std::max<size_t>(endings.size(), 1));
  Names all;
  all.reserve(names.size() * endings.size());
  for (const auto& name : names) {
    for (const auto& ending : endings) all.push_back(name + ending);
  }
  return all;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc() || end != text.end() || text.empty()) return std::nullopt;
  return value;
}

// In the alphabet of braceexpand, capital letters precede lower-case letters.
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

std::optional<int64_t> place_of_letter(std::string_view text) {
  const auto place = text.size() == 1 ? kAlphabet.find(text[0]) : std::string_view::npos;
  return place == std::string_view::npos ? std::nullopt : std::optional(static_cast<int64_t>(place));
}

/// If one bound has leading zeros, all numbers are as wide as the wider bound.
size_t width_of(std::string_view begin, std::string_view end) {
  const auto is_padded = [](std::string_view text) {
    return (text.starts_with("0") || text.starts_with("-0")) && text != "0" && text != "-0";
  };
  return is_padded(begin) || is_padded(end) ? std::max(begin.size(), end.size()) : 0;
}

std::string padded(int64_t value, size_t width) {
  std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  if (digits.size() < width) digits.insert(sign, width - digits.size(), '0');
  return digits;
}

/// Counts from one number to another, upwards or downwards.
template <typename Name>
Names counted(int64_t from, int64_t to, uint64_t step, const Name& name) {
  const bool is_upwards = from < to;
  const uint64_t distance = is_upwards ? static_cast<uint64_t>(to) - static_cast<uint64_t>(from)
                                       : static_cast<uint64_t>(from) - static_cast<uint64_t>(to);
  const uint64_t count = distance / step;
  check_count(count);
  Names names;
  for (uint64_t i = 0; i <= count; ++i) {
    const uint64_t moved = i * step;
    names.push_back(name(
        static_cast<int64_t>(is_upwards ? static_cast<uint64_t>(from) + moved : static_cast<uint64_t>(from) - moved)));
  }
  return names;
}

/// Expands a range such as "1..10" or "a..e..2"; returns std::nullopt if it is not a range.
std::optional<Names> range(std::string_view expression) {
  const auto first_dots = expression.find("..");
  if (first_dots == std::string_view::npos) return std::nullopt;
  const auto begin = expression.substr(0, first_dots);
  auto end = expression.substr(first_dots + 2);
  uint64_t step = 1;
  if (const auto dots = end.find(".."); dots != std::string_view::npos) {
    const auto given = whole_number(end.substr(dots + 2));
    if (!given) return std::nullopt;
    // The bounds determine the direction, whatever the sign of the step is.
    step =
        std::max(*given < 0 ? uint64_t{0} - static_cast<uint64_t>(*given) : static_cast<uint64_t>(*given), uint64_t{1});
    end = end.substr(0, dots);
  }
  const auto first_letter = place_of_letter(begin), last_letter = place_of_letter(end);
  if (first_letter && last_letter) {
    return counted(*first_letter, *last_letter, step,
                   [](int64_t place) { return std::string(1, kAlphabet[static_cast<size_t>(place)]); });
  }
  const auto from = whole_number(begin), to = whole_number(end);
  if (!from || !to) return std::nullopt;
  return counted(*from, *to, step, [width = width_of(begin, end)](int64_t value) { return padded(value, width); });
}

std::string without_escapes(const std::string& name) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) ++i;
    plain += name[i];
  }
  return plain;
}

Names expand(std::string_view pattern, int depth);

/// Expands a list such as "a,b{c,d}"; returns std::nullopt if there is no comma outside of braces.
std::optional<Names> sequence(std::string_view expression, int depth) {
  Names names;
  size_t start = 0;
  int open = 0;
  bool has_comma = false;
  const auto add = [&](size_t end) {
    for (auto& name : expand(expression.substr(start, end - start), depth)) names.push_back(std::move(name));
    check_count(names.size());
  };
  for (size_t i = 0; i < expression.size(); ++i) {
    const char letter = expression[i];
    if (letter == '\\') ++i;
    if (letter == '{') ++open;
    if (letter == '}') --open;
    if (letter != ',' || open != 0) continue;
    has_comma = true;
    add(i);
    start = i + 1;
  }
  if (!has_comma) return std::nullopt;
  add(expression.size());
  return names;
}

Names expand(std::string_view pattern, int depth) {
  const auto unbalanced = [&] {
    return std::invalid_argument("expand_shards: the braces do not close, or are nested too deep, in '" +
                                 std::string(pattern) + "'");
  };
  if (depth > kMaxDepth) throw unbalanced();
  Names names = {""};
  size_t start = 0;
  int open = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i];
    if (letter == '\\') ++i;
    if (letter == '{' && open++ == 0) {
      names = product(names, {std::string(pattern.substr(start, i - start))});
      start = i;
    }
    if (letter != '}' || --open != 0) continue;
    const auto expression = pattern.substr(start + 1, i - start - 1);
    auto found = range(expression);
    if (!found) found = sequence(expression, depth + 1);
    if (!found) found = product(product({"{"}, expand(expression, depth + 1)), {"}"});
    names = product(names, *found);
    start = i + 1;
  }
  if (open != 0) throw unbalanced();
  names = product(names, {std::string(pattern.substr(start))});
  for (std::string& name : names) name = without_escapes(name);  // once per level of nesting, as braceexpand does
  return names;
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
  Names all;
  while (true) {
    const auto end = pattern.find("::");
    for (auto& name : expand(pattern.substr(0, end), 0)) all.push_back(std::move(name));
    check_count(all.size());
    if (end == std::string_view::npos) return all;
    pattern.remove_prefix(end + 2);
  }
}

}  // namespace ddp
