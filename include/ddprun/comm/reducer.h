// The engine under DistributedDataParallel: bucketed gradient reduction overlapped with backward. The work is done by
// LibTorch's c10d::Reducer, the one under Python's DDP, so results are the same bits; this header hides it, because its
// C++ interface changes between versions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/bucket_cap.h>
#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/logging_data.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Settings of GradientReducer; DdpOptions says what they mean.
struct GradientReducerOptions {
  int64_t bucket_cap_bytes = BucketCap::kDefaultBytes;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  bool tune_bucket_cap = false;       ///< begin with bucket_cap_bytes, then measure others
  std::vector<size_t> bucket_ends{};  ///< once the order is known: buckets end after these parameters, whatever
                                      ///< their size
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = true;
  bool skip_all_reduce_unused_params = false;
  bool check_finite = false;          ///< look for NaN and infinity in each bucket before it is reduced
  std::vector<bool> expect_sparse{};  ///< per parameter; empty: none
  std::string module_name{};          ///< for logging_data()
  bool broadcast_buffers = true;      ///< for logging_data()
};

/// Averages the gradients of a list of parameters over a group's ranks during backward.
class GradientReducer {
 public:
  /// Hooks into the gradients of `parameters` (leaves that require gradients, no duplicates; all ranks need the same
  /// shapes and dtypes in the same order, see comm/reducer/parameter_checks.h). `names` are theirs, for messages.
  /// Construct it under the stream on which the forwards will run. Not a collective by itself.
  GradientReducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names, const GroupHandle& group,
                  const GradientReducerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Replaces the all-reduce of the buckets. Once, before the first backward. `name` is for logging_data().
  void register_comm_hook(CommHook hook, const std::string& name);

  /// What before_forward() has to know.
  struct Forward {
    bool records_gradients = true;
    bool will_reduce = true;    ///< its backward shall reduce
    JoinNotice active_ranks{};  ///< of Joinable::notify_join_context(), or null
    bool divide_by_initial_world_size = true;
  };

  /// Call before each forward. After the first reducing backward it regroups the buckets in the order in which
  /// gradients became ready, which is a broadcast from rank 0, on all ranks; as in Python's DDP also when this
  /// forward's backward will not reduce. Throws std::runtime_error (with c10d's text and the parameters' names) when
  /// the previous backward did not reach every parameter, and when a reduction has failed before.
  void before_forward(const Forward& forward);
  /// Call after each forward whose backward shall reduce; leave it out to accumulate gradients locally. `outputs` are
  /// the forward's, for finding unused parameters; empty otherwise.
  void after_forward(const std::vector<at::Tensor>& outputs);
  /// Call from the first backward with static_graph, in the backward thread: everything is reduced at its end.
  void reduce_after_backward();

  /// What a rank that has joined does in place of a forward and of a backward.
  void shadow_forward();
  /// `keep_gradients`: the parameters get the gradients that the other ranks have reduced.
  void shadow_backward(bool keep_gradients = false);
  /// Bucket sizes are not changed any more; for join().
  void stop_tuning();

  /// The parameters of the buckets in the order of reduction, as indices.
  std::vector<std::vector<size_t>> buckets() const;
  DdpLoggingData logging_data() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // autograd hooks hold weak references to it
};

}  // namespace ddp
