// Measures a step of the optimizers: optimizers [all|small|own NAME]. "all" and "small" compare the fused optimizers
// with those of torch::optim and print "case|optimizer|ours|peer" in median milliseconds of a step. The two optimizers
// alternate, so that machine load affects both equally. "own" prints "case|ours|AdamW's" for one of the other
// optimizers, which alternates with AdamW.
#include <ATen/ops/randn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include <ddprun/optim/more_optimizers.h>
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
    if (i < 0) continue;  // warm-up: state is created and memory is touched for the first time
    our_times.push_back(our_time);
    their_times.push_back(their_time);
  }
  std::printf("%d tensors of %lld|%s|%.6f|%.6f\n", count, static_cast<long long>(size), name, median(our_times),
              median(their_times));
  std::fflush(stdout);
}

template <typename Options>
void measure_own(const std::vector<std::vector<int64_t>>& cases) {
  for (const auto& shape : cases) {
    const auto count = static_cast<int>(shape[0]);
    const std::vector<int64_t> sizes(shape.begin() + 1, shape.end());
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < count; ++i) {
      tensors.push_back(at::randn(sizes).requires_grad_());
      tensors.back().mutable_grad() = at::randn(sizes);
    }
    ddp::optim::OwnOptimizer<Options> own(tensors);
    ddp::optim::AdamW adamw(tensors);
    std::vector<double> own_times, adamw_times;
    for (int i = -3; i < (count > 1 ? 101 : 11); ++i) {
      const double own_time = milliseconds(own), adamw_time = milliseconds(adamw);
      if (i < 0) continue;
      own_times.push_back(own_time);
      adamw_times.push_back(adamw_time);
    }
    std::printf("%d tensors of %lld|%.6f|%.6f\n", count, static_cast<long long>(tensors.front().numel()),
                median(own_times), median(adamw_times));
    std::fflush(stdout);
  }
}

int measure_own(std::string_view name) {
  using namespace ddp::optim;
  std::vector<std::vector<int64_t>> cases = {{400, 64}, {1, 25'000'000}};
  if (name == "Muon") cases = {{400, 8, 8}};
  if (name == "Adafactor") cases = {{400, 8, 8}, {1, 5000, 5000}, {400, 64}, {1, 25'000'000}};
  if (name == "RMSprop") return measure_own<RMSpropOptions>(cases), 0;
  if (name == "Adadelta") return measure_own<AdadeltaOptions>(cases), 0;
  if (name == "Adamax") return measure_own<AdamaxOptions>(cases), 0;
  if (name == "NAdam") return measure_own<NAdamOptions>(cases), 0;
  if (name == "RAdam") return measure_own<RAdamOptions>(cases), 0;
  if (name == "ASGD") return measure_own<ASGDOptions>(cases), 0;
  if (name == "Rprop") return measure_own<RpropOptions>(cases), 0;
  if (name == "Adafactor") return measure_own<AdafactorOptions>(cases), 0;
  if (name == "Muon") return measure_own<MuonOptions>(cases), 0;
  if (name == "Lamb") return measure_own<LambOptions>(cases), 0;
  if (name == "Lion") return measure_own<LionOptions>(cases), 0;
  return 1;
}

template <typename Ours, typename Theirs, typename Options>
void measure_small(const char* name, const Options& options) {
  measure<Ours, Theirs>(name, options, 400, 64, 201);
  measure<Ours, Theirs>(name, options, 400, 1024, 201);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "own") return measure_own(argv[2]);
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
