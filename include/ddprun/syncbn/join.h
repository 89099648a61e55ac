// Synchronised batch norms in ddp::join(), for ranks with different amounts of data. Python's SyncBatchNorm cannot do
// this.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include <ddprun/comm/join.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

namespace detail {
class ShadowedCollectives;
class SyncLayer;
}  // namespace detail

/// Makes the synchronised batch norms of a model joinable, beside the DistributedDataParallel that wraps it:
///
///     auto norms_group = ddp::new_group(group, all_ranks);          // a group of their own
///     ddp::convert_sync_batchnorm(net, *norms_group);
///     ddp::DistributedDataParallel<Net> model(net, group);
///     ddp::SyncBatchNormJoinable norms(*net, group);
///     ddp::join({&model->joinable(), &norms}, [&] { … });
///
/// A rank that has run out of data then takes part in the layers' collectives without values, in the same sequence as
/// in its last iteration. A separate thread does this. In the backward, these collectives run concurrently with the
/// reduction of gradients, so they need a separate group. Every rank needs at least one batch, and every iteration must
/// use the model in the same way: each forward in training is followed by a backward. Every rank must construct this
/// object, after the conversion; it must not outlive `group`. Throws std::invalid_argument if the model has no
/// synchronised batch norm or its batch norms use `group` itself.
class SyncBatchNormJoinable final : public Joinable {
 public:
  /// Collects the synchronised batch norms of `model`. `group` contains the ranks that join.
  SyncBatchNormJoinable(torch::nn::Module& model, GroupHandle group);
  ~SyncBatchNormJoinable() override;

  /// Called by join().
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override;
  /// Returns the group that was passed to the constructor.
  const GroupHandle& join_group() const override { return group_; }

 private:
  const GroupHandle group_;
  std::vector<std::shared_ptr<detail::SyncLayer>> layers_;
  std::shared_ptr<detail::ShadowedCollectives> shadowed_;
};

}  // namespace ddp
