#include <torch/nn/module.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <sstream>
#include <stdexcept>

#include <ddprun/comm/collectives.h>

#include "comm/group/argument_checks.h"
#include "ddprun/horovod/horovod.h"
#include "horovod/parameter_list.h"

namespace ddp::horovod {
namespace {

/// Returns the device of the first parameter. (Optimizer::parameters() is deprecated and prints a warning on stderr.)
c10::Device device_of(torch::optim::Optimizer& optimizer, c10::Device without_parameters) {
  for (const auto& parameters : optimizer.param_groups()) {
    if (!parameters.params().empty()) return parameters.params().front().device();
  }
  return without_parameters;
}

}  // namespace

void broadcast_parameters(const NamedTensors& parameters, int root, const GroupHandle& group) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined()) continue;
    throw std::invalid_argument(who(group.info()) + ": broadcast_parameters: '" + name + "' is undefined");
  }
  compare_parameters(parameters, "broadcast_parameters", group);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) {
    ddp::detail::check_unpackable(tensor, group, ("broadcast_parameters: '" + name + "'").c_str());
    tensors.push_back(tensor.detach());
  }
  broadcast_coalesced(tensors, root, group);
}

void broadcast_parameters(const torch::nn::Module& module, int root, const GroupHandle& group) {
  NamedTensors all;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) all.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) all.emplace_back(item.key(), item.value());
  }
  broadcast_parameters(all, root, group);
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, const GroupHandle& group) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw std::invalid_argument(who(group.info()) + ": broadcast_optimizer_state: cannot broadcast the state of LBFGS");
  }
  std::string bytes;
  if (group.rank() == root) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    bytes = stream.str();
  }
  bytes = broadcast_string(bytes, root, group);
  if (group.rank() == root) return;
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size(), device_of(optimizer, group.device()));
    optimizer.load(archive);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw std::runtime_error(
        who(group.info()) + ": broadcast_optimizer_state: rank " + std::to_string(root) +
        "'s optimizer state does not fit the optimizer of rank " + std::to_string(group.rank()) +
        " (same class, same parameters in the same groups are needed): " + what.substr(0, what.find('\n')));
  }
}

void broadcast_optimizer_state(DistributedOptimizer& optimizer, int root, const GroupHandle& group) {
  broadcast_optimizer_state(optimizer.inner(), root, group);
}

}  // namespace ddp::horovod
