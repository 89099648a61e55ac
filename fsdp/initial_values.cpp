#include "fsdp/initial_values.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include <ddprun/comm/collectives.h>

#include "fsdp/deferred/deferred_storage.h"
#include "fsdp/deferred/recorder.h"

namespace ddp::fsdp {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;

void materialize_if_deferred(const at::Tensor& tensor, bool computes) {
  DeferredStorage* storage = deferred_storage_of(*tensor.unsafeGetTensorImpl());
  if (storage == nullptr) return;
  const std::shared_ptr<Recorder> recorder = storage->shared_recorder();
  recorder->materialize(tensor, computes);
}

void remove_values(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.is_floating_point() || tensor.is_complex()) {
    tensor.detach().fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    tensor.detach().zero_();
  }
}

}  // namespace

bool InitialValues::needs_own_values() const {
  const bool is_first = groups_.shard.rank() == 0 && (!groups_.replicate || groups_.replicate->rank() == 0);
  return is_first || !options_.broadcasts;
}

// Broadcasts within the group of shards and then within the group of replicas. So all ranks have the values of the
// mesh's first rank.
void InitialValues::initialize(const std::vector<at::Tensor>& tensors) const {
  for (const at::Tensor& tensor : tensors) materialize_if_deferred(tensor, needs_own_values());
  if (tensors.empty() || !options_.broadcasts) return;
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.detach().to(options_.device));
  if (groups_.shard.size() > 1) broadcast_coalesced(values, 0, groups_.shard);
  if (groups_.replicate && groups_.replicate->size() > 1) broadcast_coalesced(values, 0, *groups_.replicate);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].device() != options_.device) tensors[i].detach().copy_(values[i]);
  }
}

void InitialValues::initialize_buffers(const torch::nn::Module& module) const {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) buffers.push_back(buffer);
  }
  initialize(buffers);
}

void InitialValues::initialize_parameter(const std::vector<UnitParameter>& parameters, size_t next) {
  if (next == 0) end_ = 0;
  if (!options_.computes) {
    materialize_if_deferred(parameters[next].tensor, /*computes=*/false);
    return remove_values(parameters[next].tensor);
  }
  if (next < end_) return;
  std::vector<at::Tensor> piece;
  size_t bytes = 0;
  while (end_ < parameters.size() && (piece.empty() || bytes + parameters[end_].tensor.nbytes() <= kPieceBytes)) {
    piece.push_back(parameters[end_].tensor);
    bytes += parameters[end_++].tensor.nbytes();
  }
  initialize(piece);
}

void InitialValues::compute_rest(const torch::nn::Module& module) const {
  for (const at::Tensor& parameter : module.parameters()) materialize_if_deferred(parameter, /*computes=*/true);
}

}  // namespace ddp::fsdp
