#include "ddprun/syncbn/sync_batch_norm.h"

#include <ATen/Context.h>
#include <torch/nn/functional/batchnorm.h>

#include <stdexcept>
#include <utility>

#include "comm/core/graph_capture.h"
#include "syncbn/sync_batch_norm_function.h"
#include "syncbn/sync_layer.h"

namespace ddp {

SyncBatchNormOptions::SyncBatchNormOptions(int64_t num_features, GroupHandle process_group)
    : num_features_(num_features), process_group_(std::move(process_group)) {}

SyncBatchNormOptions::SyncBatchNormOptions(const torch::nn::BatchNormOptions& options, GroupHandle process_group)
    : num_features_(options.num_features()),
      process_group_(std::move(process_group)),
      eps_(options.eps()),
      momentum_(options.momentum()),
      affine_(options.affine()),
      track_running_stats_(options.track_running_stats()) {}

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options_)
    : NormImplBase(options_),
      layer_(std::make_shared<detail::SyncLayer>(options_.process_group(), "", options_.num_features())) {}

SyncBatchNormImpl::SyncBatchNormImpl(int64_t num_features, const GroupHandle& process_group)
    : SyncBatchNormImpl(SyncBatchNormOptions(num_features, process_group)) {}

// As in torch::nn::BatchNorm, all batches have the same weight if there is no momentum.
double SyncBatchNormImpl::average_factor() {
  if (is_training() && num_batches_tracked.defined()) {
    num_batches_tracked += 1;
    if (!options.momentum()) {
      detail::refuse_capture(layer_->describe(), "without a momentum the host reads num_batches_tracked. Set one");
      return 1 / num_batches_tracked.item<double>();
    }
  }
  return options.momentum().value_or(0);
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (std::string objection = layer_->objection(input); !objection.empty()) throw std::invalid_argument(objection);
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  const bool alone = layer_->group().size() == 1;
  if (!is_training() || alone) {
    _check_input_dim(input);
    return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                     is_training() || !options.track_running_stats(), average_factor(),
                                                     options.eps());
  }
  const bool fits = layer_->objection(input).empty();  // if not, the code below throws, and the batch is not counted
  const double momentum = fits ? average_factor() : 0;
  return detail::sync_batch_norm_function(
      input, weight, bias, {.mean = running_mean, .var = running_var, .momentum = momentum}, options.eps(), layer_);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "ddp::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ')';
}

}  // namespace ddp
