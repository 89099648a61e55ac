// Internal: the engine under DistributedDataParallel: bucketed gradient reduction overlapped with backward. The work is
// done by LibTorch's c10d::Reducer, the one under Python's DDP, or in its buckets by CpuReducer: the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/logging_data.h>

#include "comm/reducer/reduced_model.h"

namespace c10d {
class Logger;
}

namespace ddp::detail {

class BucketTuning;
class GradientRouter;
class ScopedGradientRemoval;
class CpuReducer;
class ParameterGradients;
class ReducerEngine;
class ReductionContext;

/// Averages the gradients of a model over a group's ranks during backward. In a std::shared_ptr.
class GradientReducer : public std::enable_shared_from_this<GradientReducer> {
 public:
  /// Hooks into the gradients of `model`'s parameters; all ranks need the same shapes and dtypes in the same order, see
  /// comm/reducer/parameter_checks.h. Construct it under the stream on which the forwards will run. Not a collective by
  /// itself. Throws std::invalid_argument when bucket_ends names something else than a parameter of the model, and when
  /// own_engine is demanded for what it cannot do.
  GradientReducer(ReducedModel model, const GroupHandle& group, const DdpOptions& options);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Replaces the all-reduce of the buckets. Once, before the first backward. `name` is for logging_data()
  /// and compared over the ranks in the next backward; empty: the hook's own.
  void register_comm_hook(CommHook hook, const std::string& name);

  /// What before_forward() has to know.
  struct ForwardSettings {
    bool records_gradients = true;
    bool will_reduce = true;    ///< its backward shall reduce
    JoinNotice active_ranks{};  ///< of Joinable::notify_join_context(), or null
    bool divide_by_initial_world_size = true;
  };

  /// Call before each forward. After the first reducing backward it regroups the buckets in the order in which
  /// gradients became ready, which is a broadcast from rank 0, on all ranks; as in Python's DDP also when this
  /// forward's backward will not reduce. Throws std::runtime_error (with c10d's text and the parameters' names) when
  /// the previous backward did not reach every parameter, and when a reduction has failed before.
  void before_forward(const ForwardSettings& forward);
  /// Call after each forward with gradients. `outputs`: the tensors in its output, all of them if `are_known`.
  /// `will_reduce`: its backward shall reduce; otherwise gradients stay local.
  void after_forward(const std::vector<at::Tensor>& outputs, bool are_known, bool will_reduce);
  /// Whether backwards run outside of no_sync().
  void set_sync_enabled(bool enabled);
  /// Whether the gradients of the backward that runs in this thread are reduced.
  bool reduces_backward() const;
  /// Whether gradients of the present backward are being reduced, and its end has not been reached.
  bool is_in_reduced_backward() const;
  /// Call it in a backward, or autograd::grad(), when the backward reaches the forward's outputs.
  void begin_backward();
  /// Whether a parameter currently requires gradients.
  bool has_trainable_parameters() const;
  /// With static_graph: whether the first backward has been reduced. Otherwise true.
  bool knows_static_graph() const;
  /// A message for a program that ends after a backward that left parameters without gradient; "" if all parameters got
  /// one.
  std::string unfinished() const;

  /// A rank that has joined calls these two functions instead of a forward and a backward.
  void shadow_forward();
  /// `keep_gradients`: the parameters get the gradients that the other ranks have reduced.
  void shadow_backward(bool keep_gradients = false);
  /// Stops changing bucket sizes; for join().
  void stop_tuning();

  DdpLoggingData logging_data() const;

  /// The buckets of the next step, as text (comm/core/bucket_text.h); none before the first backward.
  std::string bucket_layout() const;
  /// Sets the buckets of the first backward. Call it before the first forward; it has no effect after the buckets have
  /// been determined. Throws std::invalid_argument for buckets that this model cannot have.
  void use_bucket_layout(const std::string& text);

 private:
  void check_capture(const ForwardSettings& forward) const;
  void refuse_own_reduction(const std::string& beyond) const;
  void rebuild();
  std::unique_ptr<ScopedGradientRemoval> remove_held_gradients() const;
  void regrouped();
  std::vector<size_t> indices_of_bucket_ends() const;

  const std::shared_ptr<ReductionContext> context_;
  const std::vector<size_t> bucket_ends_;
  std::shared_ptr<BucketTuning> tuning_;  // null unless kAutoBucketCap
  const std::shared_ptr<ParameterGradients> gradients_;
  int64_t reducing_forwards_ = 0;
  bool counts_active_ranks_ = false;
  std::shared_ptr<ReducerEngine> engine_;    // late: it dies early, and its hooks refer to the parameters
  std::shared_ptr<CpuReducer> cpu_reducer_;  // null where it cannot be used
  std::shared_ptr<GradientRouter> router_;
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace ddp::detail
