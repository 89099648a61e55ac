#include "fsdp/core/unit_schedule.h"

#include <algorithm>
#include <utility>

namespace ddp::fsdp {
namespace {

// Forwards that no backward follows would add to the order forever.
constexpr size_t kMaxOrderSize = size_t{1} << 16;

}  // namespace

UnitSchedule::UnitSchedule(std::vector<int> parents, std::vector<bool> is_empty)
    : parents_(std::move(parents)),
      is_empty_(std::move(is_empty)),
      is_open_(parents_.size()),
      uses_(parents_.size()),
      was_used_(parents_.size()),
      is_reduced_(parents_.size()) {}

bool UnitSchedule::contains(int outer, int inner) const {
  for (int unit = parent(inner); unit >= 0; unit = parent(unit)) {
    if (unit == outer) return true;
  }
  return false;
}

void UnitSchedule::open(int unit, std::vector<Step>& steps) {
  open_.push_back(unit);
  is_open_[at(unit)] = true;
  if (!is_empty_[at(unit)]) {
    repeats_last_order_ = repeats_last_order_ && expected_next() == unit;
    opened_.push_back(unit);
  }
  steps.push_back({.kind = Step::Kind::kOpen, .unit = unit, .next = expected_next()});
}

std::optional<int> UnitSchedule::expected_next() const {
  const std::vector<int>& before = opened_before_[records_ ? 1 : 0];
  if (!repeats_last_order_ || opened_.size() >= before.size()) return std::nullopt;
  return before[opened_.size()];
}

void UnitSchedule::close(int unit, std::vector<Step>& steps) {
  open_.erase(std::ranges::find(open_, unit));
  is_open_[at(unit)] = false;
  steps.push_back({.kind = Step::Kind::kClose, .unit = unit});
  if (!records_) return;
  was_used_[at(unit)] = true;
  if (is_empty_[at(unit)]) return;
  uses_[at(unit)].push_back(order_.size());
  order_.push_back(unit);
  forward_of_.push_back(forwards_);
}

std::vector<UnitSchedule::Step> UnitSchedule::begin_forward(bool records) {
  abandon_forward();
  records_ = records;
  ++forwards_;
  if (order_.size() > kMaxOrderSize) end_backward();
  std::vector<Step> steps;
  open(0, steps);
  return steps;
}

std::vector<UnitSchedule::Step> UnitSchedule::use_in_forward(const std::vector<int>& units) {
  std::vector<Step> steps;
  const auto is_needed = [&](int unit) {
    return std::ranges::any_of(units, [&](int used) { return used == unit || contains(unit, used); });
  };
  const std::vector<int> open_before = open_;
  for (auto unit = open_before.rbegin(); unit != open_before.rend(); ++unit) {
    if (*unit != 0 && !is_needed(*unit)) close(*unit, steps);
  }
  for (const int used : units) {
    std::vector<int> chain;
    for (int unit = used; unit >= 0; unit = parent(unit)) chain.push_back(unit);
    for (auto unit = chain.rbegin(); unit != chain.rend(); ++unit) {
      if (!is_open_[at(*unit)]) open(*unit, steps);
    }
  }
  return steps;
}

std::vector<UnitSchedule::Step> UnitSchedule::end_forward() {
  std::vector<Step> steps;
  while (!open_.empty()) close(open_.back(), steps);
  opened_before_[records_ ? 1 : 0] = std::exchange(opened_, {});
  return steps;
}

void UnitSchedule::abandon_forward() {
  open_.clear();
  is_open_.assign(parents_.size(), false);
  opened_.clear();
  repeats_last_order_ = true;
}

void UnitSchedule::begin_backward() {
  in_backward_ = true;
  is_reduced_.assign(parents_.size(), false);
}

bool UnitSchedule::is_used_again(int unit) const {
  const std::vector<size_t>& uses = uses_[at(unit)];
  return uses.size() > 1 && forward_of_[uses[uses.size() - 1]] == forward_of_[uses[uses.size() - 2]];
}

std::optional<int> UnitSchedule::take_use(int unit) {
  if (uses_[at(unit)].empty()) return std::nullopt;
  const size_t place = uses_[at(unit)].back();
  uses_[at(unit)].pop_back();
  if (place == 0) return std::nullopt;
  return order_[place - 1];
}

bool UnitSchedule::waits_for_inner(int unit) const {
  for (int inner = unit + 1; inner < size(); ++inner) {
    if (contains(unit, inner) && was_used_[at(inner)] && !is_reduced(inner)) return true;
  }
  return false;
}

void UnitSchedule::end_backward() {
  in_backward_ = false;
  order_.clear();
  forward_of_.clear();
  for (auto& uses : uses_) uses.clear();
  was_used_.assign(parents_.size(), false);
}

}  // namespace ddp::fsdp
