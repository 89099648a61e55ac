// A rank of a job that trains a sharded model, saves each step, and goes on where the newest checkpoint is:
// sharded_kill_program FOLDER STEPS MODE, started by ddprun; MODE is "now" or "async". Writes its process id to
// FOLDER/rank-<r>.pid. Rank 0 prints "saved N" after each step, and "final <checksum>" of all rows at the end.
#include <ATen/ops/arange.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

#include "base/crc32c.h"
#include "tests/support/fill_parameters.h"

namespace {

struct KilledNetImpl : torch::nn::Module {
  KilledNetImpl()
      : first(register_module("first", torch::nn::Linear(5, 7))),
        second(register_module("second", torch::nn::Linear(7, 3))) {
    ddp::test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
  torch::nn::Linear first, second;
};
TORCH_MODULE(KilledNet);

void train_until_killed(const std::filesystem::path& folder, int64_t steps, bool async, const ddp::GroupHandle& group) {
  auto model = ddp::fully_shard(KilledNet(), group, {.units = {ddp::each<torch::nn::Linear>()}});
  ddp::optim::AdamW optimizer(model->parameters(), ddp::optim::AdamWOptions(0.01));
  ddp::CheckpointManager manager(folder / "run", group, {.keep_last = 3, .async = async});
  const ddp::TrainingState state{.model = model, .optimizer = optimizer};
  const auto start = manager.load_latest(state);
  for (int64_t step = start ? start->step : 0; step < steps; ++step) {
    const auto x = (at::arange(20, at::kFloat) * static_cast<double>(step + 1 + group.rank())).cos().view({4, 5});
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(model(x), x.narrow(1, 0, 3)).backward();
    optimizer.step();
    manager.save(step + 1, state);
    ddp::print_on_main(group, "saved ", step + 1);
  }
  manager.wait();
  std::string rows;
  for (const auto& parameter : model->parameters()) {
    rows.append(static_cast<const char*>(parameter.const_data_ptr()), parameter.nbytes());
  }
  std::string all;
  for (const auto& each : ddp::all_gather_strings(rows, group)) all += each;
  ddp::print_on_main(group, "final ", ddp::crc32c(all));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw std::invalid_argument("3 arguments are needed");
  const std::filesystem::path folder = argv[1];
  const auto group = ddp::init_process_group();
  std::ofstream(folder / ("rank-" + std::to_string(group.rank()) + ".pid")) << ::getpid() << std::endl;
  train_until_killed(folder, std::stoll(argv[2]), std::string(argv[3]) == "async", group);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
