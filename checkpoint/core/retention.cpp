#include "checkpoint/core/retention.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

namespace ddp::storage {
namespace {

// `oldest_first` in the order in which they were saved.
std::vector<int64_t> best_steps(const std::vector<RetainedStep>& oldest_first, const KeepBest& rule) {
  std::vector<std::pair<double, int64_t>> ranked;
  for (const auto& each : oldest_first) {
    const auto metric = each.metrics.find(rule.metric);
    if (metric == each.metrics.end() || !std::isfinite(metric->second)) continue;
    ranked.emplace_back(rule.higher_is_better ? -metric->second : metric->second, each.step);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  ranked.resize(std::min(ranked.size(), static_cast<size_t>(rule.count)));
  std::vector<int64_t> steps;
  for (const auto& [value, step] : ranked) steps.push_back(step);
  return steps;
}

}  // namespace

void check_policy(const RetentionPolicy& policy) {
  const auto check = [](const char* name, int64_t value) {
    if (value < 1)
      throw std::invalid_argument(std::string(name) + " must be at least 1, but is " + std::to_string(value));
  };
  if (policy.keep_last) check("keep_last", *policy.keep_last);
  if (policy.keep_every) check("keep_every", *policy.keep_every);
  if (policy.keep_best) check("keep_best.count", policy.keep_best->count);
}

std::vector<int64_t> steps_to_remove(const std::vector<RetainedStep>& valid, const RetentionPolicy& policy) {
  check_policy(policy);
  if (valid.empty() || (!policy.keep_last && !policy.keep_every && !policy.keep_best)) return {};
  auto oldest_first = valid;
  std::sort(oldest_first.begin(), oldest_first.end(), [](const auto& left, const auto& right) {
    return std::pair(left.sequence, left.step) < std::pair(right.sequence, right.step);
  });
  std::vector<int64_t> steps;  // newest first
  for (auto each = oldest_first.rbegin(); each != oldest_first.rend(); ++each) steps.push_back(each->step);

  std::set<int64_t> kept{steps.front()};
  if (policy.keep_last) {
    kept.insert(steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(*policy.keep_last, std::ssize(steps)));
  }
  if (policy.keep_every) {
    for (const auto step : steps) {
      if (step % *policy.keep_every == 0) kept.insert(step);
    }
  }
  if (policy.keep_best) {
    for (const auto step : best_steps(oldest_first, *policy.keep_best)) kept.insert(step);
  }
  std::vector<int64_t> removed;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (kept.count(*step) == 0) removed.push_back(*step);
  }
  return removed;
}

}  // namespace ddp::storage
