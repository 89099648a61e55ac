// Internal: c10d's collectives on CPU tensors through memory that the ranks of one host share.
#pragma once

#include <memory>
#include <vector>

#include "comm/backends/all_reduce_backend.h"
#include "comm/backends/c10d_compat.h"
#include "comm/backends/shm_tensors.h"
#include "comm/shm/collectives.h"
#include "comm/shm/engine.h"

namespace ddp::detail {

class ShmWork;

class ShmBackend final : public c10d::Backend, public AllReduceBackend, public InCallBackend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  ShmBackend(int rank, int size, std::shared_ptr<shm::Engine> engine, std::chrono::milliseconds timeout,
             shm::Order order);
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  AllReduceTraits all_reduce_traits() const override {
    return {.in_call = true, .in_wait = AllReduceTraits::InWait::kAll};
  }
  void all_reduce_in_call(const at::Tensor& tensor, const c10d::ReduceOp& op, shm::WaitObserver& observer) override;
  WorkPtr all_reduce_in_wait(const at::Tensor& tensor) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
#if TORCH_VERSION_MINOR >= 14
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
#endif
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return number_;
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
  }
  void abort() override;
  void shutdown() override;

 private:
  // A call of c10d's, and what of it concerns every collective.
  struct Call {
    c10d::OpType type;
    const char* title;
    Tensors inputs{};
    Tensors outputs{};
    std::chrono::milliseconds timeout;
    bool async = true;
    // Where there are copies-ins the call is synchronous: they are copied back when it has ended well.
    ContiguousCopies copies{};
  };
  template <typename Options>
  static Call call_of(c10d::OpType type, const char* title, Tensors inputs, Tensors outputs, const Options& options,
                      ContiguousCopies copies) {
    return {.type = type,
            .title = title,
            .inputs = std::move(inputs),
            .outputs = std::move(outputs),
            .timeout = options.timeout,
            .async = options.asyncOp,
            .copies = std::move(copies)};
  }
  WorkPtr start(Call call, const shm::JointPtr& operation);
  // A call of c10d's with a list of tensors, for each of which `start_one(index)` starts one. Operations of a rank end
  // in their order, so the last Work stands for all; for profilers the list is one event with all its `inputs`.
  template <typename StartOne>
  WorkPtr start_list(const Tensors& inputs, const StartOne& start_one);
  WorkPtr start_all_reduce(c10d::OpType type, const at::Tensor& tensor, const Tensors& outputs,
                           const c10d::AllreduceOptions& options, size_t first = 0, size_t whole = 0);
  WorkPtr start_reduce_scatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                               const c10d::ReduceScatterOptions& options, bool is_one_tensor);
  template <typename Operation>
  void begin(const std::shared_ptr<Operation>& operation, const c10::intrusive_ptr<ShmWork>& work);
  WorkPtr start_message(c10d::OpType type, const char* title, Tensors& tensors, shm::Message::Direction direction,
                        int peer, int tag);
  shm::Reduction reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const;

  const shm::Place place_;
  const std::shared_ptr<shm::Engine> engine_;
  std::chrono::milliseconds timeout_;
  const shm::Order order_;
  uint64_t number_ = 0;
  struct List {
    const Tensors& inputs;
    bool is_last;
  };
  const List* list_ = nullptr;  // of which the call that starts is a part
  int monitored_ = 0;           // monitored barriers that were called
};

}  // namespace ddp::detail
