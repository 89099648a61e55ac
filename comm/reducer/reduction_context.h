// Internal: what the reduction of every bucket of one model needs, in one place: the options, the check of what is
// sent, the note of what failed, and what has to be done later in the same backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/process_group.h>

#include "comm/reducer/bucket_transport.h"
#include "comm/reducer/hook_agreement.h"
#include "comm/reducer/reduced_model.h"
#include "comm/reducer/reduction_failure.h"

namespace ddp::detail {

/// A gradient bucket in the timeline, from when it is ready until its sum is there; 0 while nothing is recorded.
struct BucketEvent {
  uint64_t on_host = 0;
  uint64_t on_device = 0;

  /// Its transfer begins.
  void mark_start() const;
  /// Its sum is there, on a device once the current stream is.
  void end() const;
};

/// Those of a backward, and the time in which it waits for them. In the backward thread.
class BucketEvents {
 public:
  /// The next bucket of this backward is ready. `at_end` is what runs a function when backward has computed all there
  /// is.
  BucketEvent begin(const at::Tensor& bucket, const std::function<void(std::function<void()>)>& at_end);

 private:
  int64_t backward_ = -1;  // autograd's number of it
  uint64_t next_ = 0;
};

/// The sum of `bucket` over `group`, in place, by plan_all_reduce()'s plan. A closed group says so in start().
std::shared_ptr<BucketTransport> group_transport(const GroupHandle& group, const at::Tensor& bucket,
                                                 std::shared_ptr<ReductionFailure> note);

/// Shared by the reducer and by reductions under way.
class ReductionContext {
 public:
  ReductionContext(ReducedModel model, GroupHandle group, DdpOptions options);

  const ReducedModel& model() const { return model_; }
  const GroupHandle& group() const { return group_; }
  const DdpOptions& options() const { return options_; }
  const std::string& rank() const { return rank_; }  ///< "rank 1 of 2"
  const std::shared_ptr<ReductionFailure>& failure() const { return failure_; }
  const std::shared_ptr<HookAgreement>& hook() const { return hook_; }

  /// A bucket on its way.
  struct PendingReduction {
    std::shared_ptr<BucketTransport> transport;
    TensorFuture arrived;  ///< of the sum; null where only finish() knows
    BucketEvent event{};

    /// Waits for the sum, in the backward thread.
    c10::IValue finish() const;
  };

  /// Checks a bucket, and once that all ranks have the same hook, and starts `transport`. Called in the backward
  /// thread. What it throws fails this rank's backward.
  PendingReduction begin(const at::Tensor& bucket, const std::shared_ptr<BucketTransport>& transport) const;
  /// By group_transport().
  PendingReduction begin(const at::Tensor& bucket) const;

  /// The whole way of one bucket of c10d::Reducer's: begins it and sees to it that it is finished before the Reducer
  /// needs the sum.
  TensorFuture reduce(const at::Tensor& bucket, const std::shared_ptr<BucketTransport>& transport) const;
  /// By group_transport().
  TensorFuture reduce(const at::Tensor& bucket) const;

  /// While `reduce_all` runs, reductions finish in the call that starts them: it needs their sums itself.
  void finishing_at_once(const std::function<void()>& reduce_all);

  /// Throws std::runtime_error when a reduction has failed before.
  void refuse_after_failure() const;

 private:
  void check(const at::Tensor& bucket) const;
  void compare_hooks() const;
  void at_end_of_backward(std::function<void()> step) const;
  TensorFuture finish_before_reducer(const PendingReduction& reduction) const;

  const ReducedModel model_;
  const GroupHandle group_;
  const DdpOptions options_;
  const std::string rank_;
  const std::shared_ptr<ReductionFailure> failure_ = std::make_shared<ReductionFailure>();
  const std::shared_ptr<HookAgreement> hook_ = std::make_shared<HookAgreement>();
  mutable BucketEvents events_;
  // What finishes the buckets on their way, in their order; owned by what is queued. For the backward thread.
  using Unfinished = std::vector<std::weak_ptr<std::function<void()>>>;
  const std::shared_ptr<Unfinished> unfinished_ = std::make_shared<Unfinished>();
  bool finishes_at_once_ = false;
};

}  // namespace ddp::detail
