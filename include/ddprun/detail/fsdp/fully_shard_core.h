// The part of fully_shard() that does not depend on the model's type.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/fsdp/options.h>
#include <ddprun/fsdp/sharded_unit.h>

namespace ddp {

namespace fsdp {
class ShardedModel;
struct ShardGroups;
}  // namespace fsdp

/// The groups of a mesh of one dimension, whose ranks share all parameters, or of two, (replicate, shard).
class ShardMesh {
 public:
  /// All ranks of `group` share the parameters.
  ShardMesh(const GroupHandle& group);  // NOLINT(google-explicit-constructor)
  /// Throws std::invalid_argument for a mesh of more than two dimensions.
  ShardMesh(const DeviceMesh& mesh);  // NOLINT(google-explicit-constructor)
  /// As for its handle.
  ShardMesh(const ProcessGroup& group) : ShardMesh(group.handle()) {}  // NOLINT(google-explicit-constructor)

  /// The groups.
  const fsdp::ShardGroups& groups() const { return *groups_; }

 private:
  std::shared_ptr<const fsdp::ShardGroups> groups_;
};

/// State and steps of one fully sharded model. Used by the wrapper; not meant for programs.
class FullyShardCore {
 public:
  FullyShardCore(const std::shared_ptr<torch::nn::Module>& module, const ShardMesh& mesh,
                 const FullyShardOptions& options);
  ~FullyShardCore();
  FullyShardCore(const FullyShardCore&) = delete;
  FullyShardCore& operator=(const FullyShardCore&) = delete;

  const FullyShardOptions& options() const { return options_; }

  void before_forward();
  void after_forward();
  void after_failed_forward() noexcept;
  /// A floating-point tensor in the dtype of the policy's inputs or outputs.
  at::Tensor cast_input(const at::Tensor& input) const;
  bool needs_cast(const at::Tensor& input) const;
  at::Tensor cast_output(const at::Tensor& output) const;

  /// Registers the shards in modules of `wrapper` that have the names of the model's.
  void mirror_into(torch::nn::Module& wrapper) const;

  /// clip_grad_norm_() of shards.
  at::Tensor clip(const std::vector<at::Tensor>& shards, double max_norm, double norm_type) const;

  fsdp::ShardedModel& model() const { return *model_; }
  const torch::nn::Module& module() const { return *module_; }

 private:
  FullyShardOptions options_;
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<fsdp::ShardGroups> groups_;
  std::unique_ptr<fsdp::ShardedModel> model_;
};

/// What all holders of a fully sharded model can do, whatever the model's type. Reference:
/// torch.distributed.fsdp.FSDPModule.
class FullyShardedWrapper : public Joinable {
 public:
  /// Throws std::logic_error: join() cannot shadow such a model.
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  /// The device of the computation.
  c10::Device join_device() const override;
  /// The group that shares the parameters.
  const GroupHandle& join_group() const override;

  /// Whether backwards reduce gradients. Without, each rank keeps whole gradients of all parameters, to which later
  /// backwards add, and which need the memory of an unsharded model. All ranks must use the same.
  void set_requires_gradient_sync(bool enabled);
  /// With a mesh of two dimensions: whether gradients are also reduced over the replicas; without, the sums wait for
  /// the next backward that does.
  void set_requires_all_reduce(bool enabled);
  /// Whether parameters are freed after a backward. Without, the next forward needs no all-gather while no gradient has
  /// been reduced, with which an optimizer may have changed the shards.
  void set_reshard_after_backward(bool enabled);
  /// Sets FullyShardOptions::reshard_after_forward of all units, the root among them.
  void set_reshard_after_forward(bool enabled);
  /// Whether another backward of the forwards so far follows the next one: with false their order is kept, by which
  /// units are gathered in advance. Default: true.
  void set_is_last_backward(bool enabled);
  /// What the sum of the ranks' gradients is divided by, instead of the number of ranks; all units. Finite and above 0,
  /// else std::invalid_argument. Python needs NCCL for most factors; here each gradient is multiplied by 1 / factor
  /// before the sum, as NCCL does, or the sum divided with set_force_sum_reduction_for_comms(true).
  void set_gradient_divide_factor(double factor);
  /// Whether reductions are sums of the backend, and averages divided apart; all units.
  void set_force_sum_reduction_for_comms(bool enabled);
  /// Whether parameters that a backward gives no gradient are reduced with zeros: for models of which ranks use
  /// different parameters of a unit. All units.
  void set_reduce_scatter_unused_params(bool enabled);
  /// The unit that has the module `name` as one of its own: as options.units has selected it, or "" for the root, with
  /// what no unit contains. Throws std::invalid_argument for another name.
  ShardedUnit unit(const std::string& name) const;
  /// Frees all gathered parameters. No rank needs another.
  void reshard();
  /// After a forward or backward that has thrown: waits for what is under way, frees parameters and drops all
  /// gradients. All ranks must call it.
  void reset_iteration();
  /// The whole parameter `name`, as a new tensor on the device of the computation, on every rank. All ranks of the
  /// mesh's sharding dimension must call it. Throws std::invalid_argument for an unknown name.
  at::Tensor full_parameter(const std::string& name) const;
  /// Copies this rank's rows of the whole parameter `value` into the shard of `name`. Communicates nothing. Throws
  /// std::invalid_argument for an unknown name or another shape.
  void set_full_parameter(const std::string& name, const at::Tensor& value);

  /// The core.
  FullyShardCore& core() const { return *core_; }

 protected:
  /// Gradients of the model's tensors, and sums that are not reduced over the replicas yet.
  void drop_unreduced_gradients();
  explicit FullyShardedWrapper(std::shared_ptr<FullyShardCore> core) : core_(std::move(core)) {}

 private:
  std::shared_ptr<FullyShardCore> core_;
};

/// Throws std::logic_error: a fully sharded model cannot be moved or cast.
[[noreturn]] void refuse_to_move_shards();

}  // namespace ddp
