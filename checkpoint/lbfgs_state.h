// The state of torch::optim::LBFGS under Python's names.
#pragma once

#include <torch/optim/lbfgs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

/// The tensors by field, which share the state's memory: func_evals and n_iter; after the first step also d, t,
/// prev_flat_grad, prev_loss, H_diag, and the lists old_dirs, old_stps and ro, each tensor as `<list>.<index>`.
std::map<std::string, at::Tensor> lbfgs_tensors(const torch::optim::LBFGSParamState& state);

/// The state that `tensors` hold, in memory of its own on the device of the parameters, which have `numel` elements of
/// `dtype` altogether. What is only read after it was written (`al`) is ignored. Throws std::invalid_argument for
/// tensors that are missing, or have another shape or dtype.
std::unique_ptr<torch::optim::LBFGSParamState> lbfgs_state(const std::map<std::string, at::Tensor>& tensors,
                                                           const at::Tensor& parameter, int64_t numel,
                                                           int64_t history_size);

}  // namespace ddp
