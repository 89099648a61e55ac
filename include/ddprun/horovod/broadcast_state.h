// Equal starting points on all ranks: parameters and optimizer state taken from one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace ddp::horovod {

class DistributedOptimizer;

/// Names and tensors, as net->named_parameters().pairs() gives them.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Overwrites the tensors, or a module's parameters and buffers, with rank `root`'s. Every rank must call it with the
/// same names, shapes and dtypes; names are compared first, and the first difference is named on every rank that has
/// one (std::runtime_error).
void broadcast_parameters(const NamedTensors& parameters, int root, const GroupHandle& group);
void broadcast_parameters(const torch::nn::Module& module, int root, const GroupHandle& group);

/// Gives every rank's optimizer the state and the options (learning rate, …) of rank `root`'s, by its serialized form,
/// so a rank that has no state yet needs no step to make one. Tensors come to the device of the rank's own first
/// parameter. Every rank must call it, with optimizers of the same class over the same parameters. Throws
/// std::invalid_argument for LBFGS, as Horovod does, and std::runtime_error when a rank cannot read root's state.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, const GroupHandle& group);
void broadcast_optimizer_state(DistributedOptimizer& optimizer, int root, const GroupHandle& group);

}  // namespace ddp::horovod
