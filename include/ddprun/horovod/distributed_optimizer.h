// An optimizer whose gradients are reduced over all ranks while backward runs. Reference: Horovod's
// horovod.torch.DistributedOptimizer; Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in
// TensorFlow", 2018.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/horovod/broadcast_state.h>
#include <ddprun/horovod/context.h>

namespace ddp::horovod {

/// In which dtype gradients travel. kFp16 and kBf16 halve the message and round each rank's gradient.
enum class Compression { kNone, kFp16, kBf16 };

/// Settings of DistributedOptimizer; all ranks need the same.
struct DistributedOptimizerOptions {
  /// Names for messages and for the comparison between ranks, usually net->named_parameters().pairs(). Every parameter
  /// of the optimizer must be among them. Empty: numbers in the optimizer's order.
  NamedTensors named_parameters{};
  Compression compression = Compression::kNone;
  /// Backwards that accumulate locally before gradients are reduced; the accumulated sum is what travels.
  int backward_passes_per_step = 1;
  /// kAverage, kSum or kAdasum. With kAdasum the ranks step on their own gradients and combine the changes of the
  /// parameters.
  Op op = Op::kAverage;
  /// With kAverage: gradients are divided by this before they are summed and by size() / this after, against overflow
  /// in fp16.
  double gradient_predivide_factor = 1.0;
  /// Split all parameters into this many messages; 0: by fusion_threshold_bytes.
  int num_groups = 0;
  /// Parameters that travel in one message each list; the others by fusion_threshold_bytes. Not with num_groups.
  std::vector<std::vector<at::Tensor>> groups{};
  /// Most bytes of gradients in one message. (Horovod's default is 128 MiB; smaller ones start earlier.)
  int64_t fusion_threshold_bytes = int64_t{25} << 20;
  /// Turn sparse gradients into dense ones; without it they are refused.
  bool sparse_as_dense = false;
};

/// Makes the next step() take gradients as they are, while it lives; made by skip_synchronize().
class SkipSynchronizeGuard {
 public:
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

  /// For the steps to come. Throws std::logic_error between a backward and its step().
  void set_backward_passes_per_step(int passes);

  torch::optim::Optimizer& inner();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::horovod
