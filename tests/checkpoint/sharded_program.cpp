// Loads the newest checkpoint of a run's folder on several ranks, with fully_shard() and without, and saves it again,
// sharded: sharded_program SOURCE TARGET RANKS KIND. The net and the optimizer are those of sharded_net.py; KIND is
// "fully_shard" or "replicated".
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

#include "tests/support/ranks.h"

namespace {

struct TiedOutputImpl : torch::nn::Module {
  explicit TiedOutputImpl(const at::Tensor& tied) : weight(register_parameter("weight", tied)) {}
  at::Tensor weight;
};
TORCH_MODULE(TiedOutput);

struct PythonNetImpl : torch::nn::Module {
  PythonNetImpl()
      : embed(register_module("embed", torch::nn::Embedding(7, 5))),
        fc(register_module("fc", torch::nn::Linear(5, 2))),
        bn(register_module("bn", torch::nn::BatchNorm1d(2))),
        large(register_module("large", torch::nn::Linear(2, 5))),
        out(register_module("out", TiedOutput(embed->weight))) {
    large->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(large(bn(fc(embed(x)))), out->weight); }
  torch::nn::Embedding embed;
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d bn;
  torch::nn::Linear large;
  TiedOutput out;
};
TORCH_MODULE(PythonNet);

// Tied weights once, and two groups.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> trained;
  for (const auto& each : parameters) {
    const auto is_it = [&](const at::Tensor& other) { return other.is_same(each); };
    if (each.requires_grad() && std::none_of(trained.begin(), trained.end(), is_it)) trained.push_back(each);
  }
  return {torch::optim::OptimizerParamGroup({trained.begin(), trained.begin() + 2}),
          torch::optim::OptimizerParamGroup({trained.begin() + 2, trained.end()})};
}

void save_again(const std::string& source, const std::string& target, const std::string& kind,
                const ddp::GroupHandle& group) {
  PythonNet net;
  ddp::FullySharded<PythonNet> sharded{nullptr};
  if (kind == "fully_shard") sharded = ddp::fully_shard(net, group);
  ddp::optim::AdamW optimizer(groups_of(sharded ? sharded->parameters() : net->parameters()),
                              ddp::optim::AdamWOptions(9));
  ddp::TrainingState state = sharded ? ddp::TrainingState{.model = sharded, .optimizer = optimizer}
                                     : ddp::TrainingState{.model = net, .optimizer = optimizer};
  ddp::CheckpointManager from(source, group);
  const bool is_dcp = std::filesystem::exists(std::filesystem::path(source) / ".metadata");
  const auto start = is_dcp ? std::optional(from.load(std::filesystem::path(source), state)) : from.load_latest(state);
  if (!start || start->step != 7) throw std::runtime_error("it is not what was saved");
  state.values = start->values;
  ddp::CheckpointManager manager(target, group, {.sharded = true});
  manager.save(start->step, state, {.metrics = start->metrics});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::invalid_argument("4 arguments are needed");
  ddp::test::run_ranks(std::stoi(argv[3]),
                       [&](const ddp::GroupHandle& group) { save_again(argv[1], argv[2], argv[4], group); });
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
