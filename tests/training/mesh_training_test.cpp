// What needs a group takes one dimension of a device mesh: replicas of a model whose layers are divided along the
// other.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/functional.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/metrics/metrics.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/syncbn/conversion.h>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

constexpr int64_t kInputs = 6;
constexpr int64_t kHidden = 8;
constexpr int64_t kOutputs = 3;
constexpr int64_t kRows = 32;
constexpr int64_t kBatch = 8;  // of all replicas

/// Two layers with batch norm between them; hidden features `begin` to `begin` + `count` of the whole net's.
struct DividedNetImpl : torch::nn::Module {
  DividedNetImpl(int64_t begin, int64_t count, std::optional<GroupHandle> along)
      : first(register_module("first", torch::nn::Linear(torch::nn::LinearOptions(kInputs, count).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(count))),
        second(register_module("second", torch::nn::Linear(torch::nn::LinearOptions(count, kOutputs).bias(false)))),
        group(std::move(along)) {
    const at::NoGradGuard no_grad;
    const at::Tensor numbers = at::arange(kHidden * (kInputs + kOutputs), at::kFloat).mul(0.7).sin();
    first->weight.copy_(numbers.narrow(0, 0, kHidden * kInputs).view({kHidden, kInputs}).narrow(0, begin, count));
    second->weight.copy_(
        numbers.narrow(0, kHidden * kInputs, kHidden * kOutputs).view({kOutputs, kHidden}).narrow(1, begin, count));
  }

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor output = second(at::relu(norm(first(input))));
    return group ? functional::all_reduce(output, *group) : output;
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
  std::optional<GroupHandle> group;
};
TORCH_MODULE(DividedNet);

struct Examples {
  at::Tensor inputs = at::arange(kRows * kInputs, at::kFloat).mul(1.3).cos().view({kRows, kInputs});
  at::Tensor targets = at::arange(kRows * kOutputs, at::kFloat).mul(0.9).sin().view({kRows, kOutputs});

  at::Tensor loss(const at::Tensor& rows, const std::function<at::Tensor(const at::Tensor&)>& model) const {
    return at::mse_loss(model(inputs.index_select(0, rows)), targets.index_select(0, rows));
  }
};

optim::AdamWOptions settings() {
  return optim::AdamWOptions(0.05);
}

/// One process, the whole net and the whole batch.
std::map<std::string, at::Tensor> trained_alone(int epochs) {
  const Examples examples;
  DividedNet net(0, kHidden, std::nullopt);
  optim::AdamW optimizer(net->parameters(), settings());
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t begin = 0; begin < kRows; begin += kBatch) {
      optimizer.zero_grad();
      examples.loss(at::arange(begin, begin + kBatch), [&](const at::Tensor& rows) { return net(rows); }).backward();
      optimizer.step();
    }
  }
  std::map<std::string, at::Tensor> state;
  for (const auto& item : net->named_parameters()) state[item.key()] = item.value().detach();
  for (const auto& item : net->named_buffers()) state[item.key()] = item.value();
  return state;
}

TEST_CASE("DeviceMesh: replicas of a divided model train as one process with the whole batch") {
  const test::TemporaryFolder folder;
  constexpr int kEpochs = 3;
  const std::map<std::string, at::Tensor> alone = trained_alone(2 * kEpochs);
  test::run_ranks(4, [&](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    const GroupHandle replicate = mesh["replicate"];
    const GroupHandle shard = mesh["shard"];
    const int64_t part = kHidden / mesh.size("shard");
    const Examples examples;
    const auto directory = folder.path() / ("shard" + std::to_string(mesh.coordinate("shard")));
    // The second half continues from a checkpoint, which each half of the model has of its own.
    for (const int run : {0, 1}) {
      DividedNet net(part * mesh.coordinate("shard"), part, shard);
      RANK_CHECK(convert_sync_batchnorm(net, replicate) == 1);
      DistributedDataParallel model(net, replicate);
      ZeroRedundancyOptimizer<optim::AdamW> optimizer(net->parameters(), settings(), replicate);
      DistributedSampler sampler(kRows, replicate, {.shuffle = false});
      CheckpointManager checkpoints(directory, replicate);
      const TrainingState state{.model = net, .optimizer = optimizer};
      RANK_CHECK(checkpoints.load_latest(state).has_value() == (run == 1));
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        Average mean;
        sampler.set_epoch(epoch);
        sampler.reset();
        while (const auto rows = sampler.next(kBatch / mesh.size("replicate"))) {
          optimizer.zero_grad();
          const std::vector<int64_t> numbers(rows->begin(), rows->end());
          const at::Tensor loss =
              examples.loss(at::tensor(numbers), [&](const at::Tensor& input) { return model(input); });
          // Each shard has the loss, and the gradients of all are summed: docs/collectives.md.
          (loss / shard.size()).backward();
          optimizer.step();
          mean.update(loss.item<double>());
        }
        RANK_CHECK(std::abs(mean.compute(replicate) - mean.compute(group)) < 1e-6);
      }
      optimizer.consolidate_state(0);
      checkpoints.save(run, state);
      if (run == 0) continue;
      const auto whole = [&](const at::Tensor& tensor, int64_t dim) {
        return functional::all_gather(tensor.detach(), shard, dim);
      };
      const auto close = [&](const std::string& name, const at::Tensor& tensor) {
        RANK_INFO(name);
        RANK_CHECK(at::allclose(tensor, alone.at(name), 1e-4, 1e-5));
      };
      for (const auto& item : net->named_parameters()) {
        close(item.key(), whole(item.value(), item.key() == "second.weight" ? 1 : 0));
      }
      for (const auto& item : net->named_buffers()) {
        if (item.value().dim() == 1) close(item.key(), whole(item.value(), 0));
      }
      RANK_CHECK(at::equal(all_gather(net->first->weight.detach(), replicate)[0], net->first->weight.detach()));
    }
  });
}

}  // namespace
}  // namespace ddp
