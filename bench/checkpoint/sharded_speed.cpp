// Measures checkpoints that all ranks of a job write, with tensors of equal size: sharded_speed FOLDER TENSORS KIB
// KIND, started by ddprun. KIND is "sharded" (fully_shard() and AdamW: three times the bytes of the tensors in total)
// or "replicated" (only the tensors). Rank 0 prints one line "metric|value" per measurement: seconds (the best of
// three) or MB.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

#include "bench/checkpoint/resources.h"

namespace {

struct ManyTensors : torch::nn::Module {
  ManyTensors(int64_t tensors, int64_t kibibytes) {
    for (int64_t i = 0; i < tensors; ++i) {
      register_parameter("weight" + std::to_string(i), at::ones({kibibytes, 256}) * static_cast<double>(i));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

struct Cost {
  double seconds = 0;
  double megabytes = 0;  // the maximum over all ranks, minus the memory in use before
};

Cost measured(const ddp::GroupHandle& group, const std::function<void()>& action) {
  ddp::barrier(group);
  bench::ExtraMemory extra;
  const auto begin = std::chrono::steady_clock::now();
  action();
  ddp::barrier(group);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  Cost cost{.seconds = time.count()};
  for (const auto& text : ddp::all_gather_strings(std::to_string(extra.stop()), group)) {
    cost.megabytes = std::max(cost.megabytes, std::stod(text) / 1024);
  }
  return cost;
}

void print(const ddp::GroupHandle& group, const char* metric, double value) {
  ddp::print_on_main(group, metric, "|", value);
}

void measure(const ddp::GroupHandle& group, const ddp::TrainingState& state, const std::filesystem::path& folder,
             int64_t megabytes) {
  for (const bool async : {false, true}) {
    Cost save{.seconds = 1e9}, load{.seconds = 1e9};
    double stop = 1e9;
    double plain = 1e9;
    ddp::CheckpointManager manager(folder / (async ? "async" : "now"), group,
                                   {.keep_last = 1, .sharded = true, .async = async});
    for (int round = 0; round < 3; ++round) {
      if (!async && group.rank() == 0) plain = std::min(plain, bench::plain_write(folder / "plain", megabytes));
      const auto cost = measured(group, [&] {
        const auto begin = std::chrono::steady_clock::now();
        manager.save(round, state);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        stop = std::min(stop, time.count());
        manager.wait();
      });
      save.seconds = std::min(save.seconds, cost.seconds);
      save.megabytes = std::max(save.megabytes, cost.megabytes);
      if (async) continue;
      const auto read = measured(group, [&] { manager.load(round, state); });
      load.seconds = std::min(load.seconds, read.seconds);
      load.megabytes = std::max(load.megabytes, read.megabytes);
    }
    if (async) {
      print(group, "asynchronous save, in the loop", stop);
      print(group, "asynchronous save, in all", save.seconds);
      print(group, "memory of an asynchronous save", save.megabytes);
    } else {
      print(group, "plain write", plain);
      print(group, "save", save.seconds);
      print(group, "load", load.seconds);
      print(group, "memory of a save", save.megabytes);
      print(group, "memory of a load", load.megabytes);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::invalid_argument("usage: sharded_speed FOLDER TENSORS KIB KIND");
  const std::filesystem::path folder = argv[1];
  const int64_t tensors = std::stoll(argv[2]);
  const int64_t kibibytes = std::stoll(argv[3]);
  const auto group = ddp::init_process_group();
  auto model = std::make_shared<ManyTensors>(tensors, kibibytes);
  if (std::string(argv[4]) == "replicated") {
    measure(group, {.model = model}, folder, tensors * kibibytes >> 10);
    return 0;
  }
  auto sharded = ddp::fully_shard(model, group);
  ddp::optim::AdamW optimizer(sharded->parameters(), ddp::optim::AdamWOptions(1e-3));
  for (const auto& parameter : sharded->parameters()) {
    const auto zeros = at::zeros(parameter.sizes());
    optimizer.set_parameter_state(parameter, {{"step", at::ones({})}, {"exp_avg", zeros}, {"exp_avg_sq", zeros}});
  }
  measure(group, {.model = sharded, .optimizer = optimizer}, folder, 3 * tensors * kibibytes >> 10);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "sharded_speed: %s\n", error.what());
  return 1;
}
