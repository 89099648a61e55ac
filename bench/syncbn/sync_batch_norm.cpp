// Measures forward and backward of a batch norm of shape (32, 64, 32, 32), plain and converted, and the two collectives
// that the converted one needs. The measurements alternate, so that machine load affects all equally. Rank 0 prints the
// medians in milliseconds. sync_batch_norm.py is the same program for Python's SyncBatchNorm.
//   bench_sync_batch_norm [cpu|cuda] [contiguous|channels_last]
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <ddprun/ddp.h>

namespace {

constexpr int64_t kChannels = 64;
constexpr int kWarmUp = 10;
constexpr int kRounds = 60;

void wait_for_device(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

class Stopwatch {
 public:
  // The ranks start together, so that waiting for a late rank is not measured.
  template <typename Work>
  void measure(const ddp::GroupHandle& group, Work work) {
    wait_for_device(group.device());
    ddp::barrier(group);
    const auto start = std::chrono::steady_clock::now();
    work();
    wait_for_device(group.device());
    milliseconds_.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  double median() {
    milliseconds_.erase(milliseconds_.begin(), milliseconds_.begin() + kWarmUp);
    std::sort(milliseconds_.begin(), milliseconds_.end());
    return milliseconds_[milliseconds_.size() / 2];
  }

 private:
  std::vector<double> milliseconds_;
};

}  // namespace

int main(int argc, char** argv) try {
  const bool cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
  const bool channels_last = argc > 2 && std::strcmp(argv[2], "channels_last") == 0;
  auto group = cuda ? ddp::init_process_group({.backend = "gloo", .device = c10::Device(c10::kCUDA)})
                    : ddp::init_process_group({.backend = "gloo", .device = c10::Device(c10::kCPU)});
  ddp::manual_seed(group.rank(), group);
  const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto options = at::TensorOptions().device(group.device());
  at::Tensor x = torch::randn({32, kChannels, 32, 32}, options).contiguous(format).requires_grad_();
  const at::Tensor dy = torch::randn({32, kChannels, 32, 32}, options).contiguous(format);
  torch::nn::BatchNorm2d plain(kChannels);
  torch::nn::BatchNorm2d converted(kChannels);
  plain->to(group.device());
  converted->to(group.device());
  ddp::convert_sync_batchnorm(converted, group);

  const auto step = [&](torch::nn::BatchNorm2d& norm) {
    x.mutable_grad().reset();
    norm->zero_grad();
    norm(x).backward(dy);
  };
  // The messages on the CPU: count, means, sums of squared deviations and a flag, then two sums per channel.
  const at::Tensor row = torch::zeros({2 * kChannels + 2}, options.dtype(cuda ? at::kFloat : at::kDouble));
  const at::Tensor sums = torch::zeros({2 * kChannels}, row.options());
  Stopwatch plain_time;
  Stopwatch collective_time;
  Stopwatch converted_time;
  for (int i = 0; i < kWarmUp + kRounds; ++i) {
    plain_time.measure(group, [&] { step(plain); });
    converted_time.measure(group, [&] { step(converted); });
    collective_time.measure(group, [&] {
      ddp::all_gather(row, group);
      ddp::all_reduce(sums, group);
    });
  }
  if (group.rank() == 0) {
    std::printf("plain %.4f collectives %.4f synchronised %.4f\n", plain_time.median(), collective_time.median(),
                converted_time.median());
    std::fflush(stdout);
  }
  group.close();
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
