// Internal: measures bucket sizes in the first iterations, for kAutoBucketCap; BucketTuner decides.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "comm/core/bucket_tuner.h"
#include "comm/reducer/reducer_engine.h"

namespace ddp::detail {

class BucketTuning {
 public:
  explicit BucketTuning(std::shared_ptr<const ReductionContext> context);

  int64_t bytes() const { return tuner_.bytes(); }
  bool is_finished() const { return tuner_.is_finished(); }

  /// Call before each forward that will be reduced, on all ranks: the next size, if it is time. True if the buckets
  /// were regrouped.
  bool before_forward(ReducerEngine& engine);
  /// Its backward begins.
  void after_forward(const ReducerEngine& engine);
  /// Its gradients are reduced.
  void after_backward();
  /// Goes back to the size to begin with, for good. True if the buckets were regrouped.
  bool stop(ReducerEngine& engine);

 private:
  void agree();
  bool apply(ReducerEngine& engine);
  void synchronise() const;

  const std::shared_ptr<const ReductionContext> context_;
  BucketTuner tuner_;
  int64_t applied_cap_ = 0;
  std::optional<std::chrono::steady_clock::time_point> measured_from_;
};

}  // namespace ddp::detail
