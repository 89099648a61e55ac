// A stack of equal blocks, without checkpointing and with one activation checkpointing region per block. Measures the
// bytes that stay allocated from forward to backward, as counted by the allocator, and the time of a step. Prints
// "plain|region BYTES MILLISECONDS".
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ddprun/amp/autocast.h"
#include "ddprun/recompute/recompute.h"

namespace {

constexpr int kBlocks = 24, kWidth = 256, kHidden = 1024;

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    live += size_of(data);
    return {data, data, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
  static int64_t now() { return live; }

 private:
  static int64_t size_of(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }
  static void release(void* data) {
    live -= size_of(data);
    std::free(data);
  }
  static inline std::atomic<int64_t> live = 0;
};

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm", norm);
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return x + second(at::gelu(first(norm(x)))); }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear first{kWidth, kHidden};
  torch::nn::Linear second{kHidden, kWidth};
};
TORCH_MODULE(Block);

struct Remedy {
  const char* name;
  bool is_region = false;
  bool is_bfloat16 = false;
  int passes = 1;  // the number of passes into which the batch is divided
};
constexpr std::array kRemedies{
    Remedy{.name = "plain"}, Remedy{.name = "halves", .passes = 2}, Remedy{.name = "bfloat16", .is_bfloat16 = true},
    Remedy{.name = "region", .is_region = true}, Remedy{.name = "both", .is_region = true, .is_bfloat16 = true}};

double step(std::vector<Block>& blocks, const at::Tensor& batch, const Remedy& remedy, int64_t& bytes) {
  const auto begin = std::chrono::steady_clock::now();
  for (const at::Tensor& input : batch.chunk(remedy.passes)) {
    const int64_t before = CountingAllocator::now();
    at::Tensor x = input;
    {
      const ddp::Autocast autocast(c10::kCPU, {.dtype = c10::kBFloat16, .enabled = remedy.is_bfloat16});
      for (Block& block : blocks) x = remedy.is_region ? ddp::checkpoint(block, x) : block(x);
    }
    bytes = CountingAllocator::now() - before;
    (x.pow(2).mean() / remedy.passes).backward();
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  at::set_num_threads(1);
  torch::manual_seed(1);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 21;
  std::vector<Block> blocks;
  for (int i = 0; i < kBlocks; ++i) blocks.emplace_back();
  const at::Tensor input = at::rand({256, kWidth});
  std::array<std::vector<double>, kRemedies.size()> times;
  std::array<int64_t, kRemedies.size()> bytes{};
  for (int i = 0; i <= steps; ++i) {  // alternating; the first pass allocates the gradients
    for (size_t remedy = 0; remedy < kRemedies.size(); ++remedy) {
      const double took = step(blocks, input, kRemedies[remedy], bytes[remedy]);
      if (i > 0) times[remedy].push_back(took);
    }
  }
  for (size_t remedy = 0; remedy < kRemedies.size(); ++remedy) {
    std::sort(times[remedy].begin(), times[remedy].end());
    std::printf("%s %lld %.3f\n", kRemedies[remedy].name, static_cast<long long>(bytes[remedy]),
                times[remedy][times[remedy].size() / 2]);
  }
  return 0;
}
