// Draws one epoch of indices: a library of ddprun's that needs no LibTorch.
#include <cstdint>
#include <cstdio>
#include <exception>

#include <ddprun/samplers/shard.h>

int main() try {
  int64_t sum = 0;
  for (const int64_t index : ddp::permutation(10, 0)) sum += index;
  std::printf("the sum of all indices is %lld\n", static_cast<long long>(sum));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
