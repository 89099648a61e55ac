// Internal: a base of backends that do some of c10d's collectives themselves and leave the others to another backend.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/backends/purpose_backend.h"

namespace ddp::detail {

class ForwardingBackend : public c10d::Backend, public PurposeBackend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using Tensors = std::vector<at::Tensor>;

  /// Of the rank and size of `to`.
  explicit ForwardingBackend(BackendPtr to) : Backend(to->getRank(), to->getSize()), to_(std::move(to)) {}

  void set_call_purpose(uint16_t purpose) override {
    if (auto* const compares = dynamic_cast<PurposeBackend*>(&other())) compares->set_call_purpose(purpose);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return note(other().broadcast(tensors, options));
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return note(other().allreduce(tensors, options));
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return note(other().allreduce_sparse(tensors, options));
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return note(other().allreduce_coalesced(tensors, options));
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return note(other().reduce(tensors, options));
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return note(other().allgather(outputs, inputs, options));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return note(other()._allgather_base(output, input, options));
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return note(other().allgather_coalesced(outputs, inputs, options));
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return note(other().allgather_into_tensor_coalesced(outputs, inputs, options));
  }
#if TORCH_VERSION_MINOR >= 14
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override {
    return note(other().gather_single(output, input, options));
  }
#endif
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return note(other().gather(outputs, inputs, options));
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    return note(other().scatter(outputs, inputs, options));
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return note(other().reduce_scatter(outputs, inputs, options));
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return note(other()._reduce_scatter_base(output, input, options));
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return note(other().reduce_scatter_tensor_coalesced(outputs, inputs, options));
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return note(other().alltoall_base(output, input, output_splits, input_splits, options));
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return note(other().alltoall(outputs, inputs, options));
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return note(other().send(tensors, to, tag));
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return note(other().recv(tensors, from, tag));
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return note(other().recvAnysource(tensors, tag));
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    other().monitoredBarrier(options, wait_all_ranks);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return note(other().barrier(options));
  }

  void abort() override {
    other().abort();
  }
  void shutdown() override {
    other().shutdown();
  }

  void setTimeout(std::chrono::milliseconds timeout) override {
    other().setTimeout(timeout);
  }

 protected:
  const BackendPtr& target() const {
    return to_;
  }
  /// Before each call that is left to the other backend; may throw.
  virtual c10d::Backend& other() {
    return *to_;
  }
  /// After each of them that has started something.
  virtual WorkPtr note(WorkPtr work) {
    return work;
  }

 private:
  const BackendPtr to_;
};

}  // namespace ddp::detail
