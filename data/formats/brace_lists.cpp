#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "data/formats/shard_format.h"

// PyPI's braceexpand 0.1.7, which webdataset uses, decides what patterns mean.
namespace ddp {
namespace {

constexpr size_t kMostNames = 10'000'000;
constexpr int kMostDepth = 100;
using Names = std::vector<std::string>;

void check_count(size_t count) {
  if (count > kMostNames) {
    throw std::invalid_argument("expand_shards: the pattern stands for more than 10,000,000 addresses");
  }
}

/// Every name with every ending.
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

/// "1..10", "a..e..2": nothing where it is no range.
std::optional<Names> range(std::string_view expression) {
  const auto first_dots = expression.find("..");
  if (first_dots == std::string_view::npos) return std::nullopt;
  const auto begin = expression.substr(0, first_dots);
  auto end = expression.substr(first_dots + 2);
  int64_t step = 1;
  if (const auto dots = end.find(".."); dots != std::string_view::npos) {
    const auto given = whole_number(end.substr(dots + 2));
    if (!given) return std::nullopt;
    step = std::max<int64_t>(std::abs(*given), 1);  // the direction follows from begin and end
    end = end.substr(0, dots);
  }
  const auto is_letter = [](std::string_view text) {
    return text.size() == 1 && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  };
  // Capitals come before small letters in braceexpand's alphabet.
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool are_letters = is_letter(begin) && is_letter(end);
  const auto number = [&](std::string_view text) {
    return are_letters ? std::optional(static_cast<int64_t>(kAlphabet.find(text[0]))) : whole_number(text);
  };
  const auto from = number(begin), to = number(end);
  if (!from || !to) return std::nullopt;
  const uint64_t distance = *from < *to ? static_cast<uint64_t>(*to) - static_cast<uint64_t>(*from)
                                        : static_cast<uint64_t>(*from) - static_cast<uint64_t>(*to);
  check_count(static_cast<size_t>(distance / static_cast<uint64_t>(step)));
  const auto is_padded = [](std::string_view text) {
    return (text.starts_with("0") || text.starts_with("-0")) && text != "0" && text != "-0";
  };
  const size_t width = is_padded(begin) || is_padded(end) ? std::max(begin.size(), end.size()) : 0;
  Names names;
  for (uint64_t i = 0; i <= distance; i += static_cast<uint64_t>(step)) {
    const int64_t value = *from < *to ? *from + static_cast<int64_t>(i) : *from - static_cast<int64_t>(i);
    if (are_letters) {
      names.emplace_back(1, kAlphabet[static_cast<size_t>(value)]);
      continue;
    }
    std::string digits = std::to_string(value < 0 ? -value : value);
    const size_t sign = value < 0 ? 1 : 0;
    if (digits.size() + sign < width) digits.insert(0, width - sign - digits.size(), '0');
    names.push_back((value < 0 ? "-" : "") + digits);
  }
  return names;
}

Names expand(std::string_view pattern, int depth);

/// "a,b{c,d}": nothing where there is no comma outside of braces.
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
  if (depth > kMostDepth) throw unbalanced();
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
  return product(names, {std::string(pattern.substr(start))});
}

std::string without_escapes(const std::string& name) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) ++i;
    plain += name[i];
  }
  return plain;
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
  Names all;
  while (true) {
    const auto end = pattern.find("::");
    for (const auto& name : expand(pattern.substr(0, end), 0)) all.push_back(without_escapes(name));
    check_count(all.size());
    if (end == std::string_view::npos) return all;
    pattern.remove_prefix(end + 2);
  }
}

}  // namespace ddp
