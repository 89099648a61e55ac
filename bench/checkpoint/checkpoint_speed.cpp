// Compares checkpoints of a large model with a plain implementation: checkpoint_speed FOLDER MEGABYTES. Prints one line
// "case metric ours peer" per measurement: seconds (the best of three) or megabytes. FOLDER must be on the disk to be
// measured. Files are dropped from the page cache before they are read.
#include <fcntl.h>
#include <torch/nn/module.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>

#include "bench/checkpoint/resources.h"
#include "checkpoint/module_state.h"

namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr int kTries = 3;

class Model : public torch::nn::Module {
 public:
  explicit Model(int64_t megabytes) {
    for (int64_t i = 0; i < megabytes / 16; ++i) {
      register_parameter("weight" + std::to_string(i), torch::randn({int64_t{4} << 20}), /*requires_grad=*/false);
    }
  }
};

double seconds(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void plain_read(const std::string& path, std::vector<char>& piece) {
  const int file = ::open(path.c_str(), O_RDONLY);
  while (::read(file, piece.data(), kPiece) > 0) {
  }
  ::close(file);
}

void drop_from_cache(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

struct Best {
  double ours = 1e9;
  double peer = 1e9;
};

void print(const char* what, const char* metric, const Best& best) {
  std::printf("%s|%s|%.4f|%.4f\n", what, metric, best.ours, best.peer);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("usage: checkpoint_speed FOLDER MEGABYTES");
  const std::filesystem::path folder = argv[1];
  const int64_t megabytes = std::stoll(argv[2]);
  auto group = ddp::init_process_group({.rank_info = ddp::RankInfo{}});
  Model model(megabytes);
  const ddp::TrainingState state{.model = model};
  std::vector<char> piece(kPiece, 'x');
  const auto plain = (folder / "plain").string();
  const auto saved = folder / "run" / "step-00000001" / "model.safetensors";

  Best write, read, warm;
  double overhead = 0;
  {
    ddp::CheckpointManager manager(folder / "run", group, {.keep_last = 1});
    for (int round = 0; round < kTries; ++round) {
      write.peer = std::min(write.peer, bench::plain_write(plain, megabytes));
      bench::ExtraMemory extra;
      write.ours = std::min(write.ours, seconds([&] { manager.save(1, state); }));
      overhead = std::max(overhead, extra.stop());
    }
    for (int round = 0; round < kTries; ++round) {
      drop_from_cache(plain);
      read.peer = std::min(read.peer, seconds([&] { plain_read(plain, piece); }));
      drop_from_cache(saved);
      read.ours = std::min(read.ours, seconds([&] { manager.load(1, state); }));
      warm.peer = std::min(warm.peer, seconds([&] { plain_read(plain, piece); }));
      warm.ours = std::min(warm.ours, seconds([&] { manager.load(1, state); }));
    }
  }
  print("save", "s", write);
  print("load from disk", "s", read);
  print("load from page cache", "s", warm);
  std::printf("memory of a save|MB|%.1f|\n", overhead / 1024);

  Best loop;
  {
    ddp::CheckpointManager manager(folder / "async", group, {.keep_last = 1, .async = true});
    manager.save(1, state);  // allocates the buffers
    manager.wait();
    const auto tensors = ddp::module_state(model);
    std::vector<torch::Tensor> copies;
    for (const auto& [name, tensor] : tensors) copies.push_back(tensor.clone());
    for (int64_t round = 0; round < kTries; ++round) {
      loop.peer = std::min(loop.peer, seconds([&] {
                             size_t i = 0;
                             for (const auto& [name, tensor] : tensors) copies[i++].copy_(tensor);
                           }));
      loop.ours = std::min(loop.ours, seconds([&] { manager.save(2 + round, state); }));
      manager.wait();
    }
  }
  print("asynchronous save, in the loop", "s", loop);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "checkpoint_speed: %s\n", error.what());
  return 1;
}
