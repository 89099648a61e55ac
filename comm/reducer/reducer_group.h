// Internal: what c10d::Reducer is given as its process group.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/reducer/reduction_context.h"

namespace ddp::detail {

/// The group of the ranks. It is looked up at each call, so that a closed one says so.
class ReducerProcessGroup final : public c10d::ProcessGroup {
 public:
  explicit ReducerProcessGroup(std::shared_ptr<const ReductionContext> context);

  /// Not the real one: for "gloo" c10d::Logger casts the backend to ProcessGroupGloo, which it need not be.
  const std::string getBackendName() const override { return "ddprun"; }
  /// Buckets, to be summed, and with find_unused_parameters or static_graph which parameters were used.
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;

  /// The next all-reduce of the used-parameter flags has taken place without this rank and gave `sum`.
  void set_used_flags(at::Tensor sum) { used_flags_ = std::move(sum); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> real_group() const;
  WorkPtr run(const char* what, const std::function<WorkPtr()>& begin) const;

  const std::shared_ptr<const ReductionContext> context_;
  at::Tensor used_flags_;
};

/// Sends nothing.
class NullProcessGroup final : public c10d::ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
};

}  // namespace ddp::detail
