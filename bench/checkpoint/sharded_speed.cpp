// Checkpoints that all ranks of a job write, of tensors of one size: sharded_speed FOLDER TENSORS KIB KIND, started by
// ddprun. KIND is "sharded" (fully_shard() and AdamW: three times the tensors' bytes in all) or "replicated"
// (the tensors alone). Rank 0 prints one line "metric|value" per measurement: seconds of the best of three, or MB.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

namespace {

constexpr int kTries = 3;

struct Model : torch::nn::Module {
  Model(int64_t tensors, int64_t kibibytes) {
    for (int64_t i = 0; i < tensors; ++i) {
      register_parameter("weight" + std::to_string(i), at::ones({kibibytes, 256}) * static_cast<double>(i));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

// Kilobytes of the line `name` in /proc/self/status.
double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size() + 1));
  }
  return 0;
}

struct Cost {
  double seconds = 0;
  double megabytes = 0;  // the most of any rank beyond what it had before
};

Cost measured(const ddp::GroupHandle& group, const std::function<void()>& action) {
  ddp::barrier(group);
  std::ofstream("/proc/self/clear_refs") << "5";  // forget the highest memory so far
  const auto before = memory("VmRSS");
  const auto begin = std::chrono::steady_clock::now();
  action();
  ddp::barrier(group);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  Cost cost{.seconds = time.count()};
  for (const auto& text : ddp::all_gather_strings(std::to_string(memory("VmHWM") - before), group)) {
    cost.megabytes = std::max(cost.megabytes, std::stod(text) / 1024);
  }
  return cost;
}

// A sequential write with fsync, as `dd bs=1M conv=fsync` makes it, by rank 0 alone.
double plain_write(const std::filesystem::path& path, int64_t megabytes) {
  const std::vector<char> piece(size_t{1} << 20, 'x');
  const auto begin = std::chrono::steady_clock::now();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  for (int64_t i = 0; i < megabytes; ++i) {
    if (::write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) {
      throw std::runtime_error("write failed");
    }
  }
  if (::fsync(file) != 0) throw std::runtime_error("fsync failed");
  ::close(file);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  std::filesystem::remove(path);
  return time.count();
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
    for (int round = 0; round < kTries; ++round) {
      if (!async && group.rank() == 0) plain = std::min(plain, plain_write(folder / "plain", megabytes));
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
  auto model = std::make_shared<Model>(tensors, kibibytes);
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
