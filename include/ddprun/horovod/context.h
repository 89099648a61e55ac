// What Horovod keeps in its module, as an object: who this rank is, and collectives under Horovod's names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp::horovod {

/// How ranks' values are combined. kAdasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation",
/// 2020; needs a power of two as the number of ranks.
enum class Op { kAverage, kSum, kAdasum, kMin, kMax, kProduct };

/// Settings of allreduce().
struct AllreduceOptions {
  Op op = Op::kAverage;
  double prescale_factor = 1.0;   ///< multiplies each rank's values before they are combined
  double postscale_factor = 1.0;  ///< multiplies the result
};

/// The job, and Horovod's operations on it. Made by init(); owns the process group, which closes with it or at
/// shutdown(). Move-only. Unlike Horovod, which negotiates, ranks must call the same operations in the same order, from
/// one thread at a time; every operation below is a collective of all ranks. They throw as those of comm/ do:
/// std::runtime_error naming rank, operation and peers, std::invalid_argument for wrong arguments.
class Context {
 public:
  explicit Context(ProcessGroup group);

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  int local_rank() const { return group_.local_rank(); }
  int local_size() const { return group_.info().local_world_size; }
  c10::Device device() const { return group_.device(); }
  bool is_initialized() const { return group_.is_open(); }
  /// Closes the connections; every rank should call it.
  void shutdown() { group_.close(); }

  // Implicit on purpose: the rest of the library takes a GroupHandle.
  operator const GroupHandle&() const { return group_; }
  const GroupHandle& group() const { return group_; }

  /// The combination of all ranks' `tensor` (same shape and dtype everywhere) as a new tensor; with `_` in place.
  at::Tensor allreduce(const at::Tensor& tensor, const AllreduceOptions& options = {}) const;
  Pending<at::Tensor> allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options = {}) const;
  at::Tensor allreduce_(at::Tensor tensor, const AllreduceOptions& options = {}) const;
  Pending<at::Tensor> allreduce_async_(at::Tensor tensor, const AllreduceOptions& options = {}) const;
  /// allreduce() of a list in one message per dtype.
  std::vector<at::Tensor> grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                            const AllreduceOptions& options = {}) const;

  /// All ranks' `tensor`, joined along the first dimension, which may differ from rank to rank.
  at::Tensor allgather(const at::Tensor& tensor) const;
  Pending<at::Tensor> allgather_async(const at::Tensor& tensor) const;

  /// Rank `root`'s `tensor` as a new tensor; with `_` in place. Same shape and dtype everywhere.
  at::Tensor broadcast(const at::Tensor& tensor, int root) const;
  Pending<at::Tensor> broadcast_async(const at::Tensor& tensor, int root) const;
  at::Tensor broadcast_(at::Tensor tensor, int root) const;
  Pending<at::Tensor> broadcast_async_(at::Tensor tensor, int root) const;

  /// Sends splits[i] rows to rank i, equally many when `splits` is empty; returns what was received, in rank order.
  at::Tensor alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits = {}) const;
  /// This rank's rows of the combination; the first dimension is a multiple of size(). Not for kAdasum.
  at::Tensor reducescatter(const at::Tensor& tensor, Op op = Op::kAverage) const;
  void barrier() const;

  /// Strings, for instance JSON text: Horovod's objects.
  std::string broadcast_object(const std::string& object, int root = 0) const;
  std::vector<std::string> allgather_object(const std::string& object) const;

  /// True when synchronize() would not block.
  static bool poll(const Pending<at::Tensor>& handle) { return handle.is_done(); }
  /// Waits for an …_async operation and returns its result.
  static at::Tensor synchronize(Pending<at::Tensor>& handle) { return handle.wait(); }

 private:
  ProcessGroup group_;
};

/// Joins the job that the environment describes, as init_process_group() does; `auto hvd = ddp::horovod::init();`.
/// Every rank must call it.
Context init(const ProcessGroupOptions& options = {});

}  // namespace ddp::horovod
