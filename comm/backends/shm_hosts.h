// Internal: c10d's collectives over several hosts: what DistributedDataParallel needs in every step goes through shared
// memory on each host and through gloo between one rank of each; all else through gloo between all.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/backends/forwarding_backend.h"

namespace ddp::detail {

class ShmHostsBackend final : public ForwardingBackend {
 public:
  /// Backends that connect this rank with a part of the others.
  struct Parts {
    BackendPtr intra_host{};   ///< with those of its host, or null
    BackendPtr inter_host{};   ///< with the first ranks of the other hosts; null unless it is the first of its own
    std::vector<int> hosts{};  ///< of each rank, numbered from 0 in the order of their first ranks
    std::chrono::milliseconds timeout{};
  };

  /// `all` connects all ranks.
  ShmHostsBackend(BackendPtr all, Parts parts);
  ~ShmHostsBackend() override;

  const std::string getBackendName() const override { return "shm"; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

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
  Step broadcast_intra_host(at::Tensor data, int place);

  uint64_t number_ = 0;
  const std::shared_ptr<Runner> runner_;
};

}  // namespace ddp::detail
