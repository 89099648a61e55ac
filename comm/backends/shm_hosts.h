// Internal: c10d's collectives over several hosts: what DistributedDataParallel needs in every step goes through shared
// memory on each host and through gloo between one rank of each; all else through gloo between all.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

class ShmHostsBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using Tensors = std::vector<at::Tensor>;

  /// Backends that connect this rank: with the others of its host, null where there is none; with the first ranks of
  /// the other hosts, null where this one is not its host's first; with all.
  struct Parts {
    BackendPtr inside{};
    BackendPtr between{};
    BackendPtr all{};
    std::vector<int> hosts{};  ///< of each rank, numbered from 0 in the order of their first ranks
    std::chrono::milliseconds timeout{};
  };

  ShmHostsBackend(int rank, int size, Parts parts);
  ~ShmHostsBackend() override;

  const std::string getBackendName() const override { return "shm"; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return parts().all->allreduce_sparse(tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return parts().all->allreduce_coalesced(tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return parts().all->reduce(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return parts().all->allgather(outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return parts().all->_allgather_base(output, input, options);
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return parts().all->allgather_coalesced(outputs, inputs, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return parts().all->allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return parts().all->gather(outputs, inputs, options);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    return parts().all->scatter(outputs, inputs, options);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return parts().all->reduce_scatter(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return parts().all->_reduce_scatter_base(output, input, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return parts().all->reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return parts().all->alltoall_base(output, input, output_splits, input_splits, options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return parts().all->alltoall(outputs, inputs, options);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override { return parts().all->send(tensors, to, tag); }
  WorkPtr recv(Tensors& tensors, int from, int tag) override { return parts().all->recv(tensors, from, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return parts().all->recvAnysource(tensors, tag); }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    parts().all->monitoredBarrier(options, wait_all_ranks);
  }

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return number_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void shutdown() override;

 private:
  class Call;
  struct Runner;
  using Step = std::function<void(std::chrono::milliseconds left)>;

  WorkPtr queue(c10d::OpType type, const char* title, const Tensors& tensors, std::chrono::milliseconds timeout,
                std::vector<Step> steps);
  const Parts& parts() const;
  int host() const { return parts().hosts[static_cast<size_t>(rank_)]; }
  /// `rank`'s place among those of its host.
  int place_of(int rank) const;
  Step broadcast_inside(at::Tensor data, int place);

  uint64_t number_ = 0;
  const std::shared_ptr<Runner> runner_;
  std::thread thread_;
};

}  // namespace ddp::detail
