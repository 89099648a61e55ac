// Evaluation of a model over all ranks, with the result that a single process would get.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <ddprun/base/progress.h>
#include <ddprun/comm/any_module_ref.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/samplers/sequential_sampler.h>

namespace ddp {

/// Settings of evaluate(), all optional.
struct EvaluationOptions {
  int64_t batch_size = 256;  ///< samples per rank and batch; results do not depend on it
  int workers = 0;           ///< threads that make batches; 0: the calling thread
};

namespace detail {

/// During its lifetime, the model is in evaluation mode and has rank 0's buffers, and this thread records no gradients.
class EvaluationMode {
 public:
  EvaluationMode(AnyModuleRef model, const GroupHandle& group);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  progress::PhaseScope phase_{progress::Phase::kEvaluation};
  c10::NoGradGuard no_grad_{};
  std::vector<std::pair<torch::nn::Module*, bool>> training_{};            // every module, outer modules first
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_of_this_rank_{};  // each buffer with a copy of its values
};

}  // namespace detail

/// The result of evaluate().
template <typename Dataset>
class Evaluation {
 public:
  /// As evaluate().
  Evaluation(AnyModuleRef model, const Dataset& dataset, const GroupHandle& group, const EvaluationOptions& options)
      : sampler_(dataset.size(), group),
        loader_(dataset, sampler_, group.device(), {.batch_size = options.batch_size, .workers = options.workers}),
        mode_(model, group) {}

  /// The first batch.
  auto begin() { return loader_.begin(); }
  /// The end of the loop.
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  SequentialSampler sampler_;
  DeviceLoader<Dataset> loader_;
  detail::EvaluationMode mode_;
};

/// Returns this rank's batches of `dataset`, on the group's device, for a range-based for loop that evaluates `model`:
///
///     ddp::Accuracy accuracy;
///     for (const auto& batch : ddp::evaluate(net, test, group)) accuracy.update(net(batch.data), batch.target);
///     const double top_1 = accuracy.compute(group).front();     // over all ranks
///
/// Every sample is in exactly one rank's batches, whatever the number of ranks: the last batches may differ in size,
/// and a rank may have none. Therefore metrics that are summed over ranks, such as those of metrics/, have the values
/// of a single process. During the loop, the model is in evaluation mode, no gradients are recorded, and all ranks have
/// rank 0's buffers, which are also those in a checkpoint (running statistics differ between ranks). All of this is
/// restored when the loop ends, even if an exception ends it.
///
/// Every rank must call it. `model` is the model itself, not its DistributedDataParallel. The body must also call the
/// model itself, because the wrapper's forward may communicate and ranks have different numbers of batches. `dataset`
/// returns ddp::Batch, has size() and must outlive the loop. If the dataset replaces unreadable samples by others,
/// those count twice. Throws std::invalid_argument for a batch size below 1 and for negative workers. Also throws what
/// the broadcast throws.
template <typename Dataset>
[[nodiscard]] Evaluation<Dataset> evaluate(AnyModuleRef model, const Dataset& dataset, const GroupHandle& group,
                                           const EvaluationOptions& options = {}) {
  return Evaluation<Dataset>(model, dataset, group, options);
}
template <typename Dataset>
void evaluate(AnyModuleRef model, const Dataset&& dataset, const GroupHandle& group,
              const EvaluationOptions& options = {}) = delete;

}  // namespace ddp
