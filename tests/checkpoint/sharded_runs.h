// What the tests of sharded checkpoints train and compare.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/fused_optimizer.h>
#include <ddprun/optim/lr_scheduler.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "tests/support/fill_parameters.h"
#include "tests/support/placement.h"

namespace ddp::test {

/// Odd dimensions, fewer rows than ranks, rows without elements, a frozen layer, buffers of one and of no dimensions,
/// and tied weights.
struct ShardedNetImpl : torch::nn::Module {
  ShardedNetImpl()
      : embedding(register_module("embedding", torch::nn::Embedding(11, 5))),
        first(register_module("first", torch::nn::Linear(5, 7))),
        norm(register_module("norm", torch::nn::BatchNorm1d(7))),
        small(register_module("small", torch::nn::Linear(7, 2))),
        frozen(register_module("frozen", torch::nn::Linear(2, 5))),
        head(register_parameter("head", embedding->weight)),
        hollow(register_parameter("hollow", at::zeros({3, 0}))) {
    fill_parameters(*this);
    frozen->weight.set_requires_grad(false);
    frozen->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& words) {
    return at::linear(frozen(small(norm(first(embedding(words))).tanh())), head) + hollow.sum();
  }
  torch::nn::Embedding embedding;
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear small, frozen;
  at::Tensor head, hollow;
};
TORCH_MODULE(ShardedNet);

inline at::Tensor sharded_input(int64_t rank, int64_t step) {
  return (at::arange(6, at::kLong) * 3 + rank * 5 + step).remainder(11);
}

/// One step, whatever the model is wrapped in.
template <typename Model>
void train_step(Model& model, torch::optim::Optimizer& optimizer, GradScaler& scaler, int64_t rank, int64_t step) {
  optimizer.zero_grad();
  const auto words = here(sharded_input(rank, step));
  scaler.scale(torch::nn::functional::cross_entropy(model(words), words)).backward();
  scaler.step(optimizer);
  scaler.update();
}

inline std::string bytes_of(const at::Tensor& tensor) {
  const auto copy = tensor.detach().cpu().contiguous();
  return {static_cast<const char*>(copy.const_data_ptr()), copy.nbytes()};
}

/// All ranks' bytes under each name, one after the other, on every rank; ranks may lack names.
inline std::map<std::string, std::string> joined_bytes(const std::map<std::string, std::string>& own,
                                                       const GroupHandle& group) {
  std::string message;
  for (const auto& [name, bytes] : own) message += name + "\n" + std::to_string(bytes.size()) + "\n" + bytes;
  std::map<std::string, std::string> all;
  for (const auto& text : all_gather_strings(message, group)) {
    std::istringstream stream(text);
    for (std::string name, size; std::getline(stream, name) && std::getline(stream, size);) {
      std::string bytes(std::stoul(size), ' ');
      stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      all[name] += bytes;
    }
  }
  return all;
}

/// Parameters and buffers, and the optimizer's state, of whatever is sharded in whatever way: bytes of whole tensors.
inline std::map<std::string, std::string> whole_state(const torch::nn::Module& model,
                                                      const optim::FusedOptimizer& optimizer,
                                                      const GroupHandle& group) {
  std::map<std::string, std::string> whole;
  std::map<std::string, std::string> rows;   // of shards
  std::map<std::string, std::string> alone;  // states of parameters that this rank has alone
  std::optional<GroupHandle> shard_group;
  for (const auto& item : model.named_buffers()) whole[item.key()] = bytes_of(item.value());
  for (const auto& item : model.named_parameters()) {
    const auto place = shard_place_of(item.value());
    if (place) shard_group = place->group;
    (place ? rows : whole)[item.key()] = bytes_of(item.value());
    for (const auto& [field, tensor] : optimizer.kept_state(item.value())) {
      auto& list = optimizer.is_state_divided() ? alone : place && tensor.dim() > 0 ? rows : whole;
      list["state." + item.key() + "." + field] = bytes_of(tensor);
    }
  }
  if (shard_group) whole.merge(joined_bytes(rows, *shard_group));
  if (optimizer.is_state_divided()) whole.merge(joined_bytes(alone, group));
  return whole;
}

enum class Kind { kFullyShard, kHybrid, kZero, kReplicated };

inline std::ostream& operator<<(std::ostream& stream, Kind kind) {
  constexpr const char* kNames[] = {"fully_shard", "hybrid", "zero", "replicated"};
  return stream << kNames[static_cast<int>(kind)];
}

inline const optim::AdamWOptions& adamw() {
  static const optim::AdamWOptions options = optim::AdamWOptions(0.01).weight_decay(0.1);
  return options;
}

/// One kind of run on one rank.
class ShardedRun {
 public:
  ShardedRun(Kind kind, const GroupHandle& group, bool with_sgd = false) : group_(group) {
    if (kind == Kind::kFullyShard || kind == Kind::kHybrid) {
      const FullyShardOptions options{.units = {each<torch::nn::Linear>()}};
      if (kind == Kind::kHybrid && group.size() % 2 == 0) {
        mesh_.emplace(init_device_mesh(group, {2, group.size() / 2}, {"replicate", "shard"}));
        sharded_ = fully_shard(net_, *mesh_, options);
      } else {
        sharded_ = fully_shard(net_, group, options);
      }
    } else {
      ddp_.emplace(net_, group);
    }
    const auto sgd = optim::SGDOptions(0.05).momentum(0.9);
    if (with_sgd) {
      make_optimizer<optim::SGD>(kind, sgd);
    } else {
      make_optimizer<optim::AdamW>(kind, adamw());
    }
    schedule_.emplace(*optimizer_, schedules::step({.step_size = 2, .gamma = 0.5}));
  }

  void train(int64_t step) {
    if (sharded_) {
      train_step(sharded_, *optimizer_, scaler_, group_.rank(), step);
    } else {
      train_step(*ddp_, *optimizer_, scaler_, group_.rank(), step);
    }
    schedule_->step();
    static_cast<void>(sampler_.next(2));
  }

  const torch::nn::Module& model() const { return sharded_ ? static_cast<const torch::nn::Module&>(*sharded_) : *net_; }
  std::map<std::string, std::string> whole() const { return whole_state(model(), *optimizer_, group_); }
  std::string objects() const { return scaler_.save() + schedule_->save() + sampler_.save(); }

  void consolidate(int to) { dynamic_cast<ZeroCore&>(*optimizer_).consolidate_state(to); }

  TrainingState state() {
    TrainingState state{.optimizer = *optimizer_, .scaler = scaler_, .schedule = *schedule_, .sampler = sampler_};
    state.model = sharded_ ? ModelRefs(sharded_) : ModelRefs(net_);
    return state;
  }

 private:
  template <typename Optimizer, typename Options>
  void make_optimizer(Kind kind, const Options& options) {
    const auto parameters = sharded_ ? sharded_->parameters() : net_->parameters();
    if (kind == Kind::kZero) {
      optimizer_ = std::make_unique<ZeroRedundancyOptimizer<Optimizer>>(parameters, options, group_);
    } else {
      optimizer_ = std::make_unique<Optimizer>(parameters, options);
    }
  }

  GroupHandle group_;
  ShardedNet net_ = placed(ShardedNet());
  std::optional<DeviceMesh> mesh_;
  FullySharded<ShardedNet> sharded_{nullptr};
  std::optional<DistributedDataParallel<ShardedNet>> ddp_;
  std::unique_ptr<optim::FusedOptimizer> optimizer_;
  GradScaler scaler_{{.init_scale = 8, .growth_interval = 2, .device = test_device().type()}};
  std::optional<optim::LrScheduler> schedule_;
  DistributedSampler sampler_{64, {.num_replicas = group_.size(), .rank = group_.rank(), .seed = 3}};
};

inline CheckpointOptions quiet(std::optional<bool> sharded, bool async = false) {
  return {.sharded = sharded, .async = async, .staging_bytes = 1, .notify = [](const std::string&) {}};
}

}  // namespace ddp::test
