// Draws one epoch of indices and watches it: two of ddprun's libraries, one of them on LibTorch.
#include <cstdio>
#include <exception>

#include <ddprun/monitor/progress_bar.h>
#include <ddprun/samplers/random_sampler.h>

int main() try {
  ddp::RandomSampler sampler(10, {.seed = 0});
  ddp::ProgressBar bar(10);
  std::size_t sum = 0;
  while (const auto indices = sampler.next(4)) {
    for (const std::size_t index : *indices) sum += index;
    bar.advance(static_cast<int64_t>(indices->size()));
  }
  std::printf("the sum of all indices is %zu\n", sum);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
