// A step of the fused optimizers against torch::optim's: optimizers [all|small]. Prints "case|optimizer|ours|peer",
// median milliseconds of a step. The two take turns, so that a busy machine slows both.
#include <ATen/ops/randn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include <ddprun/optim/optimizers.h>

namespace {

double milliseconds(torch::optim::Optimizer& optimizer) {
  const auto begin = std::chrono::steady_clock::now();
  optimizer.step();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::vector<at::Tensor> parameters(int count, int64_t size) {
  std::vector<at::Tensor> result;
  for (int i = 0; i < count; ++i) {
    result.push_back(at::randn({size}).requires_grad_());
    result.back().mutable_grad() = at::randn({size});
  }
  return result;
}

template <typename Ours, typename Theirs, typename Options>
void measure(const char* name, const Options& options, int count, int64_t size, int steps) {
  Ours ours(parameters(count, size), options);
  Theirs theirs(parameters(count, size), options);
  std::vector<double> our_times, their_times;
  for (int i = -3; i < steps; ++i) {
    const double our_time = milliseconds(ours), their_time = milliseconds(theirs);
    if (i < 0) continue;  // state is created, memory is touched for the first time
    our_times.push_back(our_time);
    their_times.push_back(their_time);
  }
  std::printf("%d tensors of %lld|%s|%.6f|%.6f\n", count, static_cast<long long>(size), name, median(our_times),
              median(their_times));
  std::fflush(stdout);
}

template <typename Ours, typename Theirs, typename Options>
void measure_small(const char* name, const Options& options) {
  measure<Ours, Theirs>(name, options, 400, 64, 201);
  measure<Ours, Theirs>(name, options, 400, 1024, 201);
}

}  // namespace

int main(int argc, char** argv) {
  using ddp::optim::AdamW;
  using ddp::optim::SGD;
  const torch::optim::AdamWOptions adamw(1e-3);
  const auto sgd = torch::optim::SGDOptions(1e-3).momentum(0.9);
  constexpr int64_t kLarge = 25'000'000;
  measure_small<AdamW, torch::optim::AdamW>("AdamW", adamw);
  if (argc > 1 && std::string_view(argv[1]) == "small") return 0;
  measure<AdamW, torch::optim::AdamW>("AdamW", adamw, 1, kLarge, 11);
  measure_small<SGD, torch::optim::SGD>("SGD with momentum", sgd);
  measure<SGD, torch::optim::SGD>("SGD with momentum", sgd, 1, kLarge, 11);
  return 0;
}
