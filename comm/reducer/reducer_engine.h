// Internal: c10d::Reducer with the bookkeeping that its public interface leaves out, and where it calls us: for its
// process group and its communication hook. Everything that depends on the Reducer's constructor, which changes between
// versions, is here.
#pragma once

#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/logging_data.h>

#include "comm/backends/c10d_compat.h"
#include "comm/reducer/reduction_context.h"

namespace ddp::detail {

class ReducerEngine final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// The Reducer's functions of these names; what they throw and warn of names options as DdpOptions does.
  bool rebuild_buckets();
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);
  void autograd_hook(size_t parameter);

  /// Buckets are reduced by `hook` from now on.
  void use_hook(CommHook hook, std::shared_ptr<const ReductionContext> context);

  /// Indices of the parameters in each bucket, in the order of reduction.
  std::vector<std::vector<size_t>> assignment() const;
  /// The same for the next step. After the first backward the next step regroups them in the order of the gradients.
  /// Empty before the first backward.
  std::vector<std::vector<size_t>> next_assignment(const std::vector<size_t>& limits) const;
  /// Whether the parameters of each bucket may share one.
  bool can_have(const std::vector<std::vector<size_t>>& buckets) const;
  std::vector<int64_t> bucket_bytes() const;
  std::vector<at::Tensor> bucket_parameters(size_t bucket) const { return buckets_.at(bucket).variables; }
  const std::vector<size_t>& unused_parameters() const { return unused_parameters_; }
  size_t bucket_count() const { return buckets_.size(); }
  const at::Tensor& bucket_memory(size_t bucket) const { return buckets_.at(bucket).gradients; }
  /// Of the gradients in it.
  const std::vector<at::Tensor>& bucket_views(size_t bucket) const { return buckets_.at(bucket).bucket_views_in; }
  /// The same of the tensor that the last reduction gave.
  const std::vector<at::Tensor>& reduced_views(size_t bucket) const { return buckets_.at(bucket).bucket_views_out; }
  /// Whether `view` is a view of `parameter`'s bucket.
  bool is_in_bucket(size_t parameter, const at::Tensor& view) const;
  /// Gives a bucket other memory, without its values. The parameters' gradients stay where they are. Not while a
  /// reduction is under way.
  void renew_bucket(size_t bucket);
  bool has_rebuilt() const { return has_rebuilt_bucket_; }
  /// The next rebuild_buckets() makes other buckets: the order of the gradients is known.
  bool will_rebuild() const { return should_rebuild_buckets() && !rebuilt_params_.empty(); }
  /// Times are measured in the first iterations and then in every n-th one; this reads events on the host. Returns n.
  int64_t sample_rate() const { return ddp_runtime_logging_sample_rate_; }

  /// CpuReducer reports only the times of its steps to c10d's Reducer, and only in steps for which the Reducer's logger
  /// takes times.
  enum class Moment { kFirstBucket, kComputed, kReduced };
  void begin_foreign_step();
  void note(Moment moment);
  /// Makes it see the gradients of `parameters` come, in a backward that reduces nothing and leaves the buckets as they
  /// are: what is missing, or does not fit, is what it complains about.
  void mark_ready_without_reduction(const std::vector<size_t>& parameters);

  /// Expects a backward without a forward of its own; with find_unused_parameters every parameter is expected.
  void prepare_again();
  /// Call when a reduction is finished: the order in which gradients come is that of the first one.
  void fix_gradient_order();
  /// From prepare_for_backward() until the reduction of all buckets is finished.
  bool is_reducing() const { return expect_autograd_hooks_; }
  /// With find_unused_parameters, in a backward that is not reduced: `parameter` counts as used in the next reduction.
  void note_use(size_t parameter);
  /// With find_unused_parameters, before the first gradient of a backward: parameters whose gradients the program has
  /// reset since they came under no_sync() count as unused. c10d fails with an internal error for them.
  void forget_reset_gradients();
  /// In a backward: the reduction continues as if `parameter` were unused in it.
  void mark_ready_without_gradient(size_t parameter);
  /// Throws in c10d's words when the last reduction was begun and not finished.
  void refuse_unfinished();

  /// With static_graph, before the first reduction is finished: the uses of parameters are counted from 0 again.
  void restart_static_count();
  /// Ends the first backward of a static graph, or a repeated one, which says nothing about later ones: reduces all
  /// gradients that there are.
  void finish_static_backward(bool is_repeated);
  /// The sum over the ranks of who has used each parameter, of a first backward of a static graph that has run without
  /// this rank: finish_static_backward() takes it instead of asking the other ranks.
  void set_used_flags(at::Tensor sum);

  /// The buckets of a rank that has used nothing: full of zeros, and without a row where gradients are sparse, for
  /// which get_grad_buckets() fails.
  std::vector<c10d::GradBucket> zero_buckets() const;

  /// For each parameter how many ranks have used it in this backward; this rank contributes what its last backward
  /// used, or nothing if it had no backward. All ranks must call it, or run a backward.
  at::Tensor sum_of_used_flags() const;

  /// Regroups the buckets by size, keeping the order of the gradients.
  void regroup(int64_t first_bytes, int64_t cap_bytes);
  /// Regroups the buckets so that one ends after each parameter of `ends`, keeping the order of the gradients. Kinds
  /// that cannot share a bucket are kept apart.
  void regroup_after(const std::vector<size_t>& ends);

 private:
  at::Tensor output_of_all_parameters() const;
  std::vector<size_t> order() const;
  bool can_share(size_t parameter, size_t other) const;
};

/// An engine whose buckets go through `context`.
std::shared_ptr<ReducerEngine> make_engine(const std::shared_ptr<const ReductionContext>& context);

/// Copies what c10d's logger has collected into `data`. Fields that the logger does not have are not changed.
void read_logger(c10d::Logger& logger, DdpLoggingData& data);

}  // namespace ddp::detail
