// ZeRO stage 1 (Rajbhandari et al. 2020): each rank keeps only the optimizer state for its share of the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/join.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/detail/optim/partition.h>
#include <ddprun/optim/fused_optimizer.h>

namespace ddp {

/// Settings of a ZeroRedundancyOptimizer, all optional and equal on all ranks.
struct ZeroOptions {
  /// Parameters become views of one flat bucket per rank, device and dtype, which is sent without packing. False:
  /// parameters keep their memory and are packed into messages. Python: parameters_as_bucket_view.
  bool parameters_as_bucket_view = false;
  int64_t bucket_cap_bytes = int64_t{250} << 20;  ///< maximum number of bytes packed into one message
};

/// The part of ZeroRedundancyOptimizer that does not depend on the wrapped optimizer's class.
class ZeroCore : public optim::FusedOptimizer, public Joinable {
 public:
  ~ZeroCore() override;
  ZeroCore(const ZeroCore&) = delete;
  ZeroCore& operator=(const ZeroCore&) = delete;

  /// Takes a step for this rank's share of the parameters, as FusedOptimizer::step() does, and then exchanges the
  /// parameters. Every rank must call it. It also throws what the collectives throw.
  torch::Tensor step(LossClosure closure = nullptr) override;

  /// Collects the whole state on rank `to`, in host memory; every rank must call it. Until the next step, that rank can
  /// save the optimizer as if it were not sharded. CheckpointManager does not need it, because each rank saves its own
  /// share. Throws as the collectives do, and std::invalid_argument for a rank that is not in the group.
  void consolidate_state(int to = 0);

  /// The optimizer of this rank's share of the parameters; it has their state.
  const optim::FusedOptimizer& local() const { return *local_; }
  /// Number of elements whose state each rank keeps.
  const std::vector<int64_t>& shard_elements() const { return partition_.elements(); }
  /// The rank that updates `parameter`. Throws std::invalid_argument for a tensor that is not a parameter of the
  /// optimizer.
  int rank_of(const at::Tensor& parameter) const;

  std::string type_name() const override { return local_->type_name(); }
  /// The state of `parameter`. On several ranks it requires a call of consolidate_state(this rank) after the last step;
  /// otherwise it throws std::runtime_error with Python's text.
  optim::StateTensors parameter_state(const at::Tensor& parameter) const override;
  bool is_state_divided() const override { return group_.size() > 1 && !is_consolidated_; }
  bool keeps_state_of(const at::Tensor& parameter) const override;
  optim::StateTensors kept_state(const at::Tensor& parameter) const override;
  void check_parameter_state(const at::Tensor& parameter, const optim::StateTensors& state) const override;
  /// Stores `state` if `parameter` is in this rank's share, and ignores it otherwise, so every rank can load the whole
  /// state.
  void set_parameter_state(const at::Tensor& parameter, const optim::StateTensors& state) override;
  bool has_state(const std::string& name) const override;
  at::Tensor empty_state(const at::Tensor& parameter, const std::string& name) const override;

  /// Called by join().
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override;
  /// The group over whose ranks the optimizer is sharded.
  const GroupHandle& join_group() const override { return group_; }
  bool needs_gradients() const override { return true; }

 protected:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  /// Makes the optimizer for one rank's share. Groups may be empty; they have options.
  using MakeLocal = std::function<std::unique_ptr<optim::FusedOptimizer>(const Groups&)>;

  ZeroCore(const Groups& groups, std::unique_ptr<torch::optim::OptimizerOptions> defaults, const MakeLocal& make_local,
           const GroupHandle& group, const ZeroOptions& options);

  void apply_step(const optim::GradientScaling& scaling) override;

 private:
  void check_parameters() const;
  void require_equal_on_all_ranks() const;
  void require_independent_steps() const;
  Groups assign_new_groups();
  void adopt_new_groups();
  void build_buckets();
  bool has_moved_parameters() const;
  void notify();
  void send_parameters();
  void unscale_others_gradients(const optim::GradientScaling& scaling) const;
  std::vector<at::Tensor> owned_by(int rank) const;

  GroupHandle group_;
  ZeroOptions options_;
  optim::Partition partition_;
  size_t assigned_groups_ = 0;
  std::map<const void*, int> rank_of_{};
  std::vector<std::vector<at::Tensor>> shares_;               // by rank, in the order dealt
  std::vector<std::vector<at::Tensor>> buckets_{};            // by rank; only with parameters_as_bucket_view
  std::vector<std::pair<at::Tensor, const void*>> places_{};  // of the parameters in buckets
  std::unique_ptr<optim::FusedOptimizer> local_{};
  std::map<const void*, optim::StateTensors> consolidated_{};
  bool is_consolidated_ = false;
  bool is_notified_ = false;
};

/// The optimizer `Local` (any of ddp::optim, or Larc of one) sharded over the ranks of a group: every rank updates its
/// share of the parameters and sends them to the other ranks. Its groups contain all parameters, so learning rates,
/// gradient clipping and gradient scalers work as with `Local`. The memory for state is divided by group.size(). All
/// ranks need the same gradients, as DistributedDataParallel provides them, must call step() equally often, and must
/// have the same found_inf. Inside join() a rank that has run out of inputs continues to update its share. Reference:
/// Python's ZeroRedundancyOptimizer.
template <typename Local>
class ZeroRedundancyOptimizer : public ZeroCore {
 public:
  /// Refers to the parameters. Every rank of the group must call it with the same parameters. `defaults` are options of
  /// `Local`. Throws std::invalid_argument for no parameters or sparse ones, std::runtime_error when ranks disagree on
  /// shapes or dtypes.
  template <typename Options>
  ZeroRedundancyOptimizer(std::vector<at::Tensor> parameters, const Options& defaults, const GroupHandle& group,
                          const ZeroOptions& options = {})
      : ZeroRedundancyOptimizer(Groups{torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults, group,
                                options) {}

  /// The same for parameter groups.
  template <typename Options>
  ZeroRedundancyOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups, const Options& defaults,
                          const GroupHandle& group, const ZeroOptions& options = {})
      : ZeroCore(
            groups, std::make_unique<Options>(defaults),
            [&](const Groups& share) { return std::make_unique<Local>(share, defaults); }, group, options) {}
};

}  // namespace ddp
