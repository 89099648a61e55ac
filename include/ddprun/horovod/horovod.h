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

/// How ranks' values are combined. kAdasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation",
/// 2020; needs a power of two as the number of ranks.
enum class Op { kAverage, kSum, kAdasum, kMin, kMax, kProduct };

/// Settings of allreduce().
struct AllreduceOptions {
  Op op = Op::kAverage;           ///< how the ranks' values are combined
  double prescale_factor = 1.0;   ///< multiplies each rank's values before they are combined
  double postscale_factor = 1.0;  ///< multiplies the result
};

/// The job, and Horovod's operations on it. Made by init(); owns the process group, which closes with it or at
/// shutdown(). Move-only. Unlike Horovod, which negotiates, ranks must call the same operations in the same order, from
/// one thread at a time; every operation below is a collective of all ranks. They throw as those of comm/ do:
/// std::runtime_error naming rank, operation and peers, std::invalid_argument for wrong arguments.
class Context {
 public:
  /// Takes over a group that init_process_group() or new_group() has made.
  explicit Context(ProcessGroup group);

  /// This process, 0 … size()-1.
  int rank() const { return group_.rank(); }
  /// Number of processes in the job.
  int size() const { return group_.size(); }
  /// This process among those on its node.
  int local_rank() const { return group_.local_rank(); }
  /// Number of processes on this node.
  int local_size() const { return group_.info().local_world_size; }
  /// The device bound to this rank.
  c10::Device device() const { return group_.device(); }
  /// False after shutdown().
  bool is_initialized() const { return group_.is_open(); }
  /// Closes the connections; every rank should call it.
  void shutdown() { group_.close(); }

  /// The group. Implicit on purpose: the rest of the library takes a GroupHandle.
  operator const GroupHandle&() const { return group_; }
  /// The group, for functions of the rest of the library.
  const GroupHandle& group() const { return group_; }

  /// The combination of all ranks' `tensor` (same shape and dtype on all ranks) as a new tensor; allreduce_() works in
  /// place.
  at::Tensor allreduce(const at::Tensor& tensor, const AllreduceOptions& options = {}) const;
  /// As allreduce(), but returns at once; synchronize() gives the result.
  Pending<at::Tensor> allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options = {}) const;
  /// As allreduce(), but overwrites `tensor`, which it returns.
  at::Tensor allreduce_(at::Tensor tensor, const AllreduceOptions& options = {}) const;
  /// As allreduce_(), but returns at once; synchronize() gives the result.
  Pending<at::Tensor> allreduce_async_(at::Tensor tensor, const AllreduceOptions& options = {}) const;
  /// allreduce() of a list in one message per dtype.
  std::vector<at::Tensor> grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                            const AllreduceOptions& options = {}) const;

  /// All ranks' `tensor`, joined along the first dimension, which may differ from rank to rank.
  at::Tensor allgather(const at::Tensor& tensor) const;
  /// As allgather(), but returns at once; synchronize() gives the result.
  Pending<at::Tensor> allgather_async(const at::Tensor& tensor) const;

  /// Rank `root`'s `tensor` as a new tensor; broadcast_() works in place. The shape and dtype are the same on all
  /// ranks.
  at::Tensor broadcast(const at::Tensor& tensor, int root) const;
  /// As broadcast(), but returns at once; synchronize() gives the result.
  Pending<at::Tensor> broadcast_async(const at::Tensor& tensor, int root) const;
  /// As broadcast(), but overwrites `tensor`, which it returns.
  at::Tensor broadcast_(at::Tensor tensor, int root) const;
  /// As broadcast_(), but returns at once; synchronize() gives the result.
  Pending<at::Tensor> broadcast_async_(at::Tensor tensor, int root) const;

  /// Sends splits[i] rows to rank i, equally many when `splits` is empty; returns what was received, in rank order.
  at::Tensor alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits = {}) const;
  /// This rank's rows of the combination; the first dimension is a multiple of size(). Not for kAdasum.
  at::Tensor reducescatter(const at::Tensor& tensor, Op op = Op::kAverage) const;
  /// Returns when every rank has called it.
  void barrier() const;

  /// Rank `root`'s text, for instance JSON, on every rank.
  std::string broadcast_object(const std::string& object, int root = 0) const;
  /// Every rank's text, in rank order, on every rank.
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

class DistributedOptimizer;

/// Names and tensors, as net->named_parameters().pairs() gives them.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Overwrites the tensors, or a module's parameters and buffers, with rank `root`'s. Every rank must call it with the
/// same names, shapes and dtypes; names are compared first, and the first difference is named on every rank that has
/// one (std::runtime_error).
void broadcast_parameters(const NamedTensors& parameters, int root, const GroupHandle& group);
/// The same for a module's parameters and buffers.
void broadcast_parameters(const torch::nn::Module& module, int root, const GroupHandle& group);

/// Gives every rank's optimizer the state and the options (learning rate, …) of rank `root`'s, by its serialized form,
/// so a rank that has no state yet need not make a step first. Tensors are copied to the device of the rank's first
/// parameter. Every rank must call it, with optimizers of the same class over the same parameters. Throws
/// std::invalid_argument for LBFGS, as Horovod does, and std::runtime_error when a rank cannot read root's state.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, const GroupHandle& group);
/// The same for the wrapped optimizer.
void broadcast_optimizer_state(DistributedOptimizer& optimizer, int root, const GroupHandle& group);

/// The two vectors' adaptive sum, (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: their sum when they are orthogonal, their
/// mean when they are equal. Same shape and dtype, floating-point; products are summed in double precision. A zero
/// vector leaves the other one as it is.
at::Tensor adasum(const at::Tensor& a, const at::Tensor& b);

/// Replaces each of `tensors` on every rank by the adaptive sum of all ranks' values: pairs of ranks first, then pairs
/// of pairs. Each tensor (a layer of the model) is combined separately. Every rank gets the same bits. All ranks must
/// call it with the same list; costs log2(size) exchanges of the whole list. Throws std::invalid_argument when the
/// number of ranks is not a power of two or a tensor is not floating-point, std::runtime_error when a peer fails.
void adasum_allreduce(const std::vector<at::Tensor>& tensors, const GroupHandle& group);

/// The dtype in which gradients are sent. kFp16 and kBf16 halve the message and round each rank's gradient.
enum class Compression { kNone, kFp16, kBf16 };

/// Settings of DistributedOptimizer; all ranks need the same.
struct DistributedOptimizerOptions {
  /// Names for messages and for the comparison between ranks, usually net->named_parameters().pairs(). Every parameter
  /// of the optimizer must be among them. Empty: numbers in the optimizer's order.
  NamedTensors named_parameters{};
  Compression compression = Compression::kNone;  ///< the dtype in which gradients are sent
  /// Number of backward passes that accumulate locally before gradients are reduced. The accumulated sum is reduced.
  int backward_passes_per_step = 1;
  /// kAverage, kSum or kAdasum. With kAdasum the ranks step on their own gradients and combine the changes of the
  /// parameters.
  Op op = Op::kAverage;
  /// With kAverage: gradients are divided by this before they are summed and by size() / this after, against overflow
  /// in fp16.
  double gradient_predivide_factor = 1.0;
  /// Split all parameters into this many messages; 0: by fusion_threshold_bytes.
  int num_groups = 0;
  /// Lists of parameters; the gradients of each list are sent in one message. The other parameters are grouped by
  /// fusion_threshold_bytes. Not together with num_groups.
  std::vector<std::vector<at::Tensor>> groups{};
  /// Most bytes of gradients in one message. (Horovod's default is 128 MiB; smaller ones start earlier.)
  int64_t fusion_threshold_bytes = int64_t{25} << 20;
  /// Turn sparse gradients into dense ones; without it they are refused.
  bool sparse_as_dense = false;
};

/// While it exists, step() does not synchronize gradients; made by skip_synchronize().
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
/// Every rank must construct it with the same parameters in the same order (compared, std::runtime_error names the
/// first difference) and call step() or synchronize() equally often. The inner optimizer, which schedulers use, must
/// outlive it, and it must be destroyed before the group closes. A parameter without a gradient counts as zero, so a
/// rank may skip parts of the model. With one rank it costs nothing. Throws std::invalid_argument for options that
/// contradict each other, for LBFGS, and with kAdasum when the number of ranks is not a power of two.
class DistributedOptimizer {
 public:
  /// Wraps `inner`; a collective.
  DistributedOptimizer(torch::optim::Optimizer& inner, const GroupHandle& group,
                       const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  /// synchronize(), unless skipped, and a step of the inner optimizer. Collective.
  void step();

  /// Waits until the gradients of all ranks are combined in the parameters, to clip or inspect them before step().
  /// Collective. With kAdasum it does nothing.
  void synchronize();

  /// After synchronize(): while the guard lives, step() does not synchronize again. Throws std::logic_error with
  /// kAdasum, which has nothing to skip.
  [[nodiscard]] SkipSynchronizeGuard skip_synchronize();

  /// Clears the gradients. Throws std::logic_error between a backward and the step() or synchronize() that belongs to
  /// it: reductions are under way.
  void zero_grad(bool set_to_none = true);

  /// Sets the number for future steps. Throws std::logic_error between a backward and its step().
  void set_backward_passes_per_step(int passes);

  /// The wrapped optimizer, for schedules.
  torch::optim::Optimizer& inner();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::horovod
