#include "launcher/options/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace launcher {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

constexpr std::size_t kMinRejectedDistance = 3;  // more than two wrong characters are not a typing error

// The distance between `name` and `option`, or the beginning of `option` if that is closer.
std::size_t misspelling(std::string_view name, std::string_view option) {
  std::size_t distance = edit_distance(name, option);
  const bool is_exchange = std::is_permutation(name.begin(), name.end(), option.begin(), option.end());
  if (name.size() < 6 && distance == 2 && !is_exchange)
    distance = kMinRejectedDistance;  // --port is not a misspelt --export
  if (name.size() >= 2 && option.starts_with(name)) distance = std::min<std::size_t>(distance, 1);
  if (name.size() < 4) return distance;
  for (std::size_t length = name.size() - 1; length <= name.size() + 1 && length < option.size(); ++length) {
    distance = std::min(distance, edit_distance(name, option.substr(0, length)) + 1);
  }
  return distance;
}

}  // namespace

std::string nearest_name(std::string_view mistyped, std::span<const std::string> names) {
  std::string best;
  // A name in which all characters differ is not a misspelt one either.
  std::size_t best_distance = std::min(kMinRejectedDistance, mistyped.size());
  for (const std::string& name : names) {
    const std::size_t distance = misspelling(mistyped, name);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = name;
  }
  return best;
}

}  // namespace launcher
