// Which checkpoints stay and which are removed. Pure; no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/checkpoint/options.h>

namespace ddp {

/// A checkpoint stays when any of the rules keeps it. Without any rule all stay; the newest always does.
struct RetentionPolicy {
  std::optional<int> keep_last{};       ///< those that were saved last, so many
  std::optional<int64_t> keep_every{};  ///< steps that are multiples of this
  std::optional<KeepBest> keep_best{};
};

namespace storage {

struct RetainedStep {
  int64_t step = 0;
  int64_t sequence = 0;  ///< order in which they were saved; by step among equal ones
  std::map<std::string, double> metrics{};
};

/// Throws std::invalid_argument for counts below 1.
void check_policy(const RetentionPolicy& policy);

/// The steps of `valid` (any order, damaged checkpoints left out) that `policy` removes, oldest first. Among equal
/// metrics the older one is better; steps with non-finite metrics are never the best.
std::vector<int64_t> steps_to_remove(const std::vector<RetainedStep>& valid, const RetentionPolicy& policy);

}  // namespace storage
}  // namespace ddp
