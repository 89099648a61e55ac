// Horovod's interface for data parallel training, for programs that used Horovod: a context named `hvd` whose members
// have Horovod's names, and an optimizer that reduces gradients during backward. Table: docs/horovod.md. Reference:
// horovod.torch; Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace torch::nn {
class Module;
}

namespace torch::optim {
class Optimizer;
}

namespace ddp::horovod {

/// How the ranks' values are combined. kAdasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation",
/// 2020; the number of ranks must be a power of two.
enum class Op { kAverage, kSum, kAdasum, kMin, kMax, kProduct };

/// Settings of allreduce().
struct AllreduceOptions {
  Op op = Op::kAverage;           ///< how the ranks' values are combined
  double prescale_factor = 1.0;   ///< multiplies each rank's values before they are combined
  double postscale_factor = 1.0;  ///< multiplies the result
};

/// The job, and Horovod's operations on it. init() returns it. It owns the process group, which closes with it or at
/// shutdown(). Move-only. Horovod negotiates the order of operations; here, all ranks must call the same operations in
/// the same order, from one thread at a time. Every operation below is a collective of all ranks. Operations throw as
/// those of comm/ do: std::runtime_error that names rank, operation and peers, and std::invalid_argument for wrong
/// arguments.
class Context {
 public:
  /// Takes ownership of a group that init_process_group() or new_group() returned.
  explicit Context(ProcessGroup group);

  /// The rank of this process, 0 … size()-1.
  int rank() const { return group_.rank(); }
  /// Number of processes in the job.
  int size() const { return group_.size(); }
  /// The rank of this process among the processes on its node.
  int local_rank() const { return group_.local_rank(); }
  /// Number of processes on this node.
  int local_size() const { return group_.info().local_world_size; }
  /// The device bound to this rank.
  c10::Device device() const { return group_.device(); }
  /// False after shutdown().
  bool is_initialized() const { return group_.is_open(); }
  /// Closes the connections; every rank should call it.
  void shutdown() { group_.close(); }

  /// The group. The conversion is implicit because the rest of the library expects a GroupHandle.
  operator const GroupHandle&() const { return group_; }
  /// The group, for functions of the rest of the library.
  const GroupHandle& group() const { return group_; }

  /// Returns the combination of all ranks' `tensor` (same shape and dtype on all ranks) as a new tensor; allreduce_()
  /// works in place.
  at::Tensor allreduce(const at::Tensor& tensor, const AllreduceOptions& options = {}) const;
  /// As allreduce(), but returns immediately; synchronize() returns the result.
  Pending<at::Tensor> allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options = {}) const;
  /// As allreduce(), but overwrites `tensor`, which it returns.
  at::Tensor allreduce_(at::Tensor tensor, const AllreduceOptions& options = {}) const;
  /// As allreduce_(), but returns immediately; synchronize() returns the result.
  Pending<at::Tensor> allreduce_async_(at::Tensor tensor, const AllreduceOptions& options = {}) const;
  /// allreduce() for a list of tensors, with one message per dtype.
  std::vector<at::Tensor> grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                            const AllreduceOptions& options = {}) const;

  /// Returns all ranks' `tensor`, concatenated along the first dimension, whose size may differ between ranks.
  at::Tensor allgather(const at::Tensor& tensor) const;
  /// As allgather(), but returns immediately; synchronize() returns the result.
  Pending<at::Tensor> allgather_async(const at::Tensor& tensor) const;

  /// Returns rank `root`'s `tensor` as a new tensor; broadcast_() works in place. The shape and dtype must be the same
  /// on all ranks.
  at::Tensor broadcast(const at::Tensor& tensor, int root) const;
  /// As broadcast(), but returns immediately; synchronize() returns the result.
  Pending<at::Tensor> broadcast_async(const at::Tensor& tensor, int root) const;
  /// As broadcast(), but overwrites `tensor`, which it returns.
  at::Tensor broadcast_(at::Tensor tensor, int root) const;
  /// As broadcast_(), but returns immediately; synchronize() returns the result.
  Pending<at::Tensor> broadcast_async_(at::Tensor tensor, int root) const;

  /// Sends splits[i] rows to rank i (the same number to each rank if `splits` is empty), and returns the received rows
  /// in rank order.
  at::Tensor alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits = {}) const;
  /// Returns this rank's rows of the combination. The size of the first dimension must be a multiple of size(). Does
  /// not support kAdasum.
  at::Tensor reducescatter(const at::Tensor& tensor, Op op = Op::kAverage) const;
  /// Returns when every rank has called it.
  void barrier() const;

  /// Returns rank `root`'s text, for example JSON, on every rank.
  std::string broadcast_object(const std::string& object, int root = 0) const;
  /// Returns the texts of all ranks, in rank order, on every rank.
  std::vector<std::string> allgather_object(const std::string& object) const;

  /// Whether synchronize() would return without blocking.
  static bool poll(const Pending<at::Tensor>& handle) { return handle.is_done(); }
  /// Waits for an …_async operation and returns its result.
  static at::Tensor synchronize(Pending<at::Tensor>& handle) { return handle.wait(); }

 private:
  ProcessGroup group_;
};

/// Joins the job that the environment describes, as init_process_group() does; `auto hvd = ddp::horovod::init();`.
/// Every rank must call it.
Context init(const ProcessGroupOptions& options = {});

class DistributedOptimizer;

/// Names and tensors, as net->named_parameters().pairs() returns them.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Overwrites the tensors, or a module's parameters and buffers, with those of rank `root`. Every rank must call it
/// with the same names, shapes and dtypes. They are compared first. If they differ, every rank throws
/// std::runtime_error, which describes the first difference.
void broadcast_parameters(const NamedTensors& parameters, int root, const GroupHandle& group);
/// The same for a module's parameters and buffers.
void broadcast_parameters(const torch::nn::Module& module, int root, const GroupHandle& group);

/// Copies the state and the options (learning rate, …) of rank `root`'s optimizer to all ranks, in serialized form. A
/// rank that has no state yet need not take a step first. Tensors are copied to the device of the rank's first
/// parameter. Every rank must call it, with optimizers of the same class over the same parameters. Throws
/// std::invalid_argument for LBFGS, as Horovod does, and std::runtime_error if a rank cannot read the state of `root`.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, const GroupHandle& group);
/// The same for the wrapped optimizer.
void broadcast_optimizer_state(DistributedOptimizer& optimizer, int root, const GroupHandle& group);

/// Returns the adaptive sum of two vectors, (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b. It is their sum if they are
/// orthogonal, and their mean if they are equal. They must have the same shape and a floating-point dtype, which is the
/// same for both. Products are summed in double precision. If one vector is zero, the result is the other one.
at::Tensor adasum(const at::Tensor& a, const at::Tensor& b);

/// Replaces each of `tensors` on every rank by the adaptive sum of all ranks' values: first for pairs of ranks, then
/// for pairs of pairs. Each tensor (a layer of the model) is combined separately. Every rank gets the same bits. All
/// ranks must call it with the same list. It needs log2(size) exchanges of the whole list. Throws std::invalid_argument
/// if the number of ranks is not a power of two or a tensor is not floating-point, and std::runtime_error if a peer
/// fails.
void adasum_allreduce(const std::vector<at::Tensor>& tensors, const GroupHandle& group);

/// The dtype in which gradients are sent. kFp16 and kBf16 halve the size of the message and round each rank's gradient.
enum class Compression { kNone, kFp16, kBf16 };

/// Settings of DistributedOptimizer, which must be equal on all ranks.
struct DistributedOptimizerOptions {
  /// Names for messages and for the comparison between ranks, usually net->named_parameters().pairs(). They must
  /// include every parameter of the optimizer. If empty, parameters are numbered in the optimizer's order.
  NamedTensors named_parameters{};
  Compression compression = Compression::kNone;  ///< the dtype in which gradients are sent
  /// Number of backward passes that accumulate locally before gradients are reduced. The accumulated sum is reduced.
  int backward_passes_per_step = 1;
  /// kAverage, kSum or kAdasum. With kAdasum the ranks step on their own gradients and combine the changes of the
  /// parameters.
  Op op = Op::kAverage;
  /// With kAverage, gradients are divided by this factor before they are summed, and by size() / factor afterwards.
  /// This avoids overflow in fp16.
  double gradient_predivide_factor = 1.0;
  /// Split all parameters into this many messages. 0: the size of messages depends on fusion_threshold_bytes.
  int num_groups = 0;
  /// Lists of parameters; the gradients of each list are sent in one message. The other parameters are grouped by
  /// fusion_threshold_bytes. Not together with num_groups.
  std::vector<std::vector<at::Tensor>> groups{};
  /// Maximum number of bytes of gradients in one message. (Horovod's default is 128 MiB; smaller messages start
  /// earlier.)
  int64_t fusion_threshold_bytes = int64_t{25} << 20;
  /// Convert sparse gradients to dense ones; otherwise they are refused.
  bool sparse_as_dense = false;
};

/// During its lifetime, step() does not synchronize gradients. skip_synchronize() returns it.
class SkipSynchronizeGuard {
 public:
  /// Called by DistributedOptimizer::skip_synchronize(); programs do not call it.
  explicit SkipSynchronizeGuard(bool& enabled) : enabled_(enabled), before_(std::exchange(enabled, false)) {}
  ~SkipSynchronizeGuard() { enabled_ = before_; }
  SkipSynchronizeGuard(const SkipSynchronizeGuard&) = delete;
  SkipSynchronizeGuard& operator=(const SkipSynchronizeGuard&) = delete;

 private:
  bool& enabled_;
  const bool before_;  // guards nest
};

/// Wraps an optimizer:
///
///     ddp::horovod::DistributedOptimizer optimizer(sgd, hvd, {.named_parameters = net->named_parameters().pairs()});
///     optimizer.zero_grad();
///     loss.backward();        // reduction overlaps with this
///     optimizer.step();       // waits for it, then steps sgd
///
/// Every rank must construct it with the same parameters in the same order. They are compared, and std::runtime_error
/// names the first difference. Every rank must call step() or synchronize() the same number of times. The inner
/// optimizer, which schedulers use, must outlive it, and it must be destroyed before the group closes. A parameter
/// without a gradient counts as zero, so a rank may skip parts of the model. With one rank it costs nothing. Throws
/// std::invalid_argument for options that contradict each other, for LBFGS, and, with kAdasum, if the number of ranks
/// is not a power of two.
class DistributedOptimizer {
 public:
  /// Wraps `inner`; a collective.
  DistributedOptimizer(torch::optim::Optimizer& inner, const GroupHandle& group,
                       const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  /// Calls synchronize() unless that is skipped, and steps the inner optimizer. Collective.
  void step();

  /// Waits until the parameters have the combined gradients of all ranks, so that they can be clipped or inspected
  /// before step(). Collective. With kAdasum it does nothing.
  void synchronize();

  /// Called after synchronize(): during the lifetime of the guard, step() does not synchronize again. Throws
  /// std::logic_error with kAdasum, which has nothing to skip.
  [[nodiscard]] SkipSynchronizeGuard skip_synchronize();

  /// Clears the gradients. Throws std::logic_error between a backward and its step() or synchronize(), because
  /// reductions are in progress.
  void zero_grad(bool set_to_none = true);

  /// Sets the number of backward passes for future steps. Throws std::logic_error between a backward and its step().
  void set_backward_passes_per_step(int passes);

  /// The wrapped optimizer, for schedules.
  torch::optim::Optimizer& inner();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::horovod
