// Chooses the bucket size of gradient reduction from measured steps. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ddp::detail {

/// Tries bucket sizes, from one bucket for all gradients downwards, for a few steps each. It chooses the size with the
/// shortest time of the slowest rank, and the larger size if two are equal. The time of a step is from the end of the
/// forward to the end of the reduction, so it includes both the gain by overlap and the cost of more collectives.
class BucketTuner {
 public:
  /// `gradient_bytes`: size of all gradients together.
  explicit BucketTuner(int64_t gradient_bytes);

  /// Bucket size for the next step. Changes only after record() or decide().
  int64_t bytes() const { return candidates_.at(current_); }
  bool is_finished() const { return finished_; }

  /// Adds the time of one step that used bytes().
  void record(double seconds);
  /// All candidates were measured here: times() are to be reduced to the maximum over the ranks and given to decide().
  bool needs_decision() const { return !finished_ && measured_ == candidates_.size(); }
  const std::vector<double>& times() const { return times_; }
  void decide(const std::vector<double>& slowest_rank_times);

  /// Ends the trials with the size `bytes`.
  void stop(int64_t bytes);

 private:
  std::vector<int64_t> candidates_;
  std::vector<double> times_;  // the best of each candidate's steps
  size_t current_ = 0;
  size_t measured_ = 0;
  int steps_ = 0;
  bool finished_ = false;
};

}  // namespace ddp::detail
