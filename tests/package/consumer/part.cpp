// Draws one epoch of indices and watches it: two of ddprun's libraries, none of them on LibTorch.
#include <cstdint>
#include <cstdio>
#include <exception>

#include <ddprun/monitor/progress_bar.h>
#include <ddprun/samplers/permutation.h>

int main() try {
  ddp::ProgressBar bar(10);
  int64_t sum = 0;
  for (const int64_t index : ddp::permutation(10, 0)) {
    sum += index;
    bar.advance();
  }
  std::printf("the sum of all indices is %lld\n", static_cast<long long>(sum));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
