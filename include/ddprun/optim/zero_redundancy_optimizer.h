// ZeRO stage 1 (Rajbhandari et al. 2020): each rank keeps the optimizer state of its share of the parameters only.
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
  /// Parameters become views of one flat bucket per rank, device and dtype, which is sent as it is. False: they stay
  /// where they are and are packed for sending. Python: parameters_as_bucket_view.
  bool parameters_as_bucket_view = false;
  int64_t bucket_cap_bytes = int64_t{250} << 20;  ///< most bytes packed into one message
};

/// What ZeroRedundancyOptimizer does whatever the optimizer: see there.
class ZeroCore : public optim::FusedOptimizer, public Joinable {
 public:
  ~ZeroCore() override;
  ZeroCore(const ZeroCore&) = delete;
  ZeroCore& operator=(const ZeroCore&) = delete;

  /// As FusedOptimizer::step(), on this rank's share, and then exchanges the parameters. Every rank must call it.
  /// Throws as the collectives do, too.
  torch::Tensor step(LossClosure closure = nullptr) override;

  /// Collects the whole state on rank `to`, in host memory; every rank must call it. Until the next step that rank can
  /// save the optimizer as if it were not sharded. Not needed for CheckpointManager, to which each rank gives its
  /// share. Throws as the collectives do, and std::invalid_argument for a rank that the group lacks.
  void consolidate_state(int to = 0);

  /// The optimizer of this rank's share, which has its state.
  const optim::FusedOptimizer& local() const { return *local_; }
  /// Number of elements whose state each rank keeps.
  const std::vector<int64_t>& shard_elements() const { return partition_.elements(); }
  /// The rank that updates `parameter`. Throws std::invalid_argument for one that is not the optimizer's.
  int rank_of(const at::Tensor& parameter) const;

  std::string type_name() const override { return local_->type_name(); }
  /// On several ranks it needs consolidate_state(this rank) since the last step; throws std::runtime_error, with
  /// Python's text, otherwise.
  optim::StateTensors parameter_state(const at::Tensor& parameter) const override;
  bool is_state_divided() const override { return group_.size() > 1 && !is_consolidated_; }
  bool keeps_state_of(const at::Tensor& parameter) const override;
  optim::StateTensors kept_state(const at::Tensor& parameter) const override;
  void check_parameter_state(const at::Tensor& parameter, const optim::StateTensors& state) const override;
  /// Keeps it where the parameter is of this rank's share, else ignores it: every rank loads the whole state.
  void set_parameter_state(const at::Tensor& parameter, const optim::StateTensors& state) override;
  bool has_state(const std::string& name) const override;
  at::Tensor empty_state(const at::Tensor& parameter, const std::string& name) const override;

  /// For join().
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override;
  /// The group over whose ranks the optimizer is sharded.
  const GroupHandle& join_group() const override { return group_; }
  bool needs_gradients() const override { return true; }

 protected:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  /// Makes the optimizer of a share; groups may be empty, and have options.
  using MakeLocal = std::function<std::unique_ptr<optim::FusedOptimizer>(const Groups&)>;

  ZeroCore(const Groups& groups, std::unique_ptr<torch::optim::OptimizerOptions> defaults, const MakeLocal& make_local,
           const GroupHandle& group, const ZeroOptions& options);

  void apply_step(const optim::GradientScaling& scaling) override;

 private:
  void check_parameters() const;
  void require_equal_on_all_ranks() const;
  void require_independent_steps() const;
  Groups deal_out_new_groups();
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
  size_t dealt_groups_ = 0;
  std::map<const void*, int> rank_of_{};
  std::vector<std::vector<at::Tensor>> shares_;               // by rank, in the order dealt
  std::vector<std::vector<at::Tensor>> buckets_{};            // by rank; only with parameters_as_bucket_view
  std::vector<std::pair<at::Tensor, const void*>> places_{};  // of the parameters in buckets
  std::unique_ptr<optim::FusedOptimizer> local_{};
  std::map<const void*, optim::StateTensors> consolidated_{};
  bool is_consolidated_ = false;
  bool is_notified_ = false;
};

/// `Local` (any of ddp::optim, or Larc of one) sharded over the ranks of a group: every rank steps
/// its share of the parameters and sends them to the others. It has all parameters in its groups, so learning rates,
/// gradient clipping and gradient scalers work as with `Local`; state memory falls to 1 / group.size(). All ranks need
/// the same gradients (DistributedDataParallel's) and must step equally often; found_inf must agree on all. Inside
/// join() a rank that has run out of inputs continues to update its share. Reference: Python's ZeroRedundancyOptimizer.
template <typename Local>
class ZeroRedundancyOptimizer : public ZeroCore {
 public:
  /// Borrows the parameters; every rank of the group must call it with the same. `defaults` are options of `Local`.
  /// Throws std::invalid_argument for no parameters or sparse ones, std::runtime_error when ranks disagree on shapes or
  /// dtypes.
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
