// When units of a fully sharded model are gathered, freed and reduced: the order of Python's fully_shard(), concluded
// from the parameters that operators use. Does not use LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp::fsdp {

/// The units of a model form a tree: a unit inside another is its child. Unit 0 is the root; parents have smaller
/// numbers than their children. An open unit is one whose forward is under way.
class UnitSchedule {
 public:
  /// What is to be done with a unit in a forward.
  struct Step {
    enum class Kind { kOpen, kClose };
    Kind kind;
    int unit;
    std::optional<int> next{};  ///< of kOpen: the unit that opens next, if all is as in the last such forward
  };
  /// What is to be done when a backward begins to use a unit.
  struct BackwardUse {
    std::vector<int> may_be_freed;  ///< units that the backward does not use any more, if they are gathered
    std::optional<int> prefetch;    ///< the unit that the backward probably needs next
    bool is_used_again = false;     ///< the same forward has used the unit before, and so the backward will again
  };

  /// `parents[u]` is the unit that contains unit u; -1 for the root. `is_empty[u]`: it has no parameters of its own, so
  /// that there is nothing to gather.
  UnitSchedule(std::vector<int> parents, std::vector<bool> is_empty);

  int size() const { return static_cast<int>(parents_.size()); }

  /// The forward of the whole model begins; opens the root. `records` is whether a backward may follow.
  std::vector<Step> begin_forward(bool records);
  /// An operator of the forward uses parameters of `units`: closes the open units that contain none of them, and opens
  /// these and what contains them, from the outside to the inside. Empty where nothing changes.
  std::vector<Step> use_in_forward(const std::vector<int>& units);
  /// The forward has ended: closes what is open, the root last.
  std::vector<Step> end_forward();
  /// The forward has failed: nothing is open any more.
  void abandon_forward();
  /// Whether `unit` is open and no unit inside it is.
  bool is_innermost(int unit) const { return !open_.empty() && open_.back() == unit; }

  /// A backward begins.
  void begin_backward();
  bool is_in_backward() const { return in_backward_; }
  /// Whether the forward has used `unit` and no backward has used it since; of a unit without parameters, whether the
  /// forward has used one inside it.
  bool awaits_backward(int unit) const { return is_empty_[at(unit)] ? was_used_[at(unit)] : !uses_[at(unit)].empty(); }
  /// The backward begins to use `unit`, in which `is_complete(u)` says whether all gradients of unit u have arrived.
  template <typename IsComplete>
  BackwardUse use_in_backward(int unit, const IsComplete& is_complete) {
    BackwardUse use;
    for (int other = 1; other < size(); ++other) {
      if (other == unit || contains(other, unit)) continue;
      // One that the forward has used again is gathered again for the earlier use.
      if (is_complete(other) || !uses_[at(other)].empty()) use.may_be_freed.push_back(other);
    }
    use.is_used_again = is_used_again(unit);
    use.prefetch = take_use(unit);
    return use;
  }
  /// `unit` was reduced, or had nothing to reduce.
  void set_reduced(int unit) { is_reduced_[at(unit)] = true; }
  bool is_reduced(int unit) const { return is_reduced_[at(unit)]; }
  /// Whether a unit inside `unit` was used in the forward and is not reduced yet.
  bool waits_for_inner(int unit) const;
  /// The backward has ended, after which the order of the forwards is forgotten.
  void end_backward();
  /// The same, but another backward of these forwards follows.
  void pause_backward() { in_backward_ = false; }

  /// Whether `outer` contains `inner`; not so for itself.
  bool contains(int outer, int inner) const;
  int parent(int unit) const { return parents_[at(unit)]; }

 private:
  static size_t at(int unit) { return static_cast<size_t>(unit); }
  void open(int unit, std::vector<Step>& steps);
  std::optional<int> expected_next() const;
  void close(int unit, std::vector<Step>& steps);
  bool is_used_again(int unit) const;
  std::optional<int> take_use(int unit);

  std::vector<int> parents_;
  std::vector<bool> is_empty_;
  std::vector<int> open_;  // from the outside to the inside
  std::vector<bool> is_open_;
  bool records_ = false;
  std::vector<int> opened_;                        // in this forward, those with parameters
  std::array<std::vector<int>, 2> opened_before_;  // in the last one without gradients and the last one with them
  bool repeats_last_order_ = true;                 // so far
  bool in_backward_ = false;
  int64_t forwards_ = 0;
  std::vector<int> order_;                 // units as they were closed, of all forwards since the last backward
  std::vector<int64_t> forward_of_;        // in which of the forwards each of them was
  std::vector<std::vector<size_t>> uses_;  // of each unit: its places in order_ that no backward has used
  std::vector<bool> was_used_;             // since the last backward
  std::vector<bool> is_reduced_;           // in this backward
};

}  // namespace ddp::fsdp
