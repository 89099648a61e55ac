// Measures an all-reduce of float32 values: `all_reduce BACKEND BYTES...`. Each rank is started with the variables of
// its rank. For each size, rank 0 prints the bytes, the median microseconds, and the median microseconds of a memory
// copy of as many bytes that all ranks make at the same time.
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

namespace {

using Clock = std::chrono::steady_clock;

// The number of calls, which is equal on all ranks: it keeps the total bytes roughly constant, but is at least a few
// calls.
int repeats_of(size_t bytes) {
  constexpr size_t kAll = size_t{1} << 30;
  return static_cast<int>(std::clamp<size_t>(kAll / std::max<size_t>(bytes, 1), 8, 3000));
}

// The number of calls that are timed together. For a small message, reading the clock would take a large part of the
// time.
int run_of(size_t bytes) {
  return bytes <= size_t{64} << 10 ? 10 : 1;
}

template <typename Call>
double median_of(int repeats, int run, const Call& call) {
  std::vector<double> times;
  for (int i = 0; i < repeats; i += run) {
    const auto before = Clock::now();
    for (int k = 0; k < run; ++k) call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count() / run);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void measure(size_t bytes, const ddp::GroupHandle& group) {
  const at::Tensor tensor = at::ones({static_cast<int64_t>(bytes / sizeof(float))});
  std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 2);
  const int repeats = repeats_of(bytes);
  for (int i = 0; i < 5; ++i) ddp::all_reduce(tensor, group, ddp::ReduceOp::kMax);
  const double reduce = median_of(repeats, run_of(bytes), [&] { ddp::all_reduce(tensor, group); });
  ddp::barrier(group);
  const double copy = median_of(std::min(repeats, 200), run_of(bytes), [&] {
    std::memcpy(to.data(), from.data(), bytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // keeps the compiler from removing the copy
  });
  ddp::barrier(group);
  if (group.rank() == 0) std::printf("%zu %.4f %.4f\n", bytes, reduce, copy);
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  auto group = ddp::init_process_group({.backend = words.at(0)});
  for (size_t i = 1; i < words.size(); ++i) measure(std::stoul(words[i]), group);
  return 0;
}
