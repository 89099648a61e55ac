// The first calls of LibTorch's elementwise functions in a process, for CTest:
//
//     first_calls_program            a group's connection makes them, in one thread
//     first_calls_program ROUNDS     in so many new processes, two threads compute after it what one thread computes
//
// "first_calls_program ROUNDS alone" leaves the first calls to the two threads: it shows the fault, a few times in
// 4,000 rounds with oneMKL 2024. Exits with 1 where something is wrong.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <ATen/record_function.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <ddprun/comm/process_group.h>

#include "comm/group/first_calls.h"

namespace {

std::map<std::string, int>& calls() {
  static std::map<std::string, int> counts;
  return counts;
}

std::unique_ptr<at::ObserverContext> count_call(const at::RecordFunction& function) {
  ++calls()[function.name()];
  return nullptr;
}

bool makes_first_calls() {
  at::addGlobalCallback(at::RecordFunctionCallback(count_call).scopes({at::RecordScope::FUNCTION}));
  const ddp::ProcessGroup group = ddp::init_process_group();
  bool all = true;
  for (const char* name : {"acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "pow",
                           "sin", "sqrt", "tan", "tanh", "trunc"}) {
    const int count = calls()["aten::" + std::string(name)];
    if (count == 2) continue;  // of float32 and of float64
    std::fprintf(stderr, "expected 2 calls of %s, got %d\n", name, count);
    all = false;
  }
  return all;
}

at::Tensor compute(const at::Tensor& numbers) {
  const at::NoGradGuard no_grad;
  return at::tanh(at::addmm(numbers, numbers, numbers));
}

// In a new process. `delay`: of the second thread, in turns of a loop.
bool agree(const std::array<float, 25>& values, bool prepares, int delay) {
  if (prepares) ddp::detail::make_first_calls();
  const at::Tensor numbers = at::arange(25, at::kFloat).view({5, 5});
  std::copy(values.begin(), values.end(), numbers.mutable_data_ptr<float>());
  std::array<at::Tensor, 2> results;
  std::atomic<int> ready{0};
  const auto run = [&](int which) {
    ++ready;
    while (ready < 2) {
    }
    for (std::atomic<int> turn{0}; turn < which * delay;) ++turn;
    results[which] = compute(numbers);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  const at::Tensor later = compute(numbers);
  return at::equal(results[0], later) && at::equal(results[1], later);
}

int count_differences(int rounds, bool prepares) {
  std::array<float, 25> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7 % 25) * 0.16 - 2);
  int differences = 0;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = fork();  // this process has called nothing of LibTorch
    if (child == 0) _exit(agree(values, prepares, round % 500 * 20) ? 0 : 1);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return rounds;
    if (WEXITSTATUS(status) != 0) ++differences;
  }
  return differences;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return makes_first_calls() ? 0 : 1;
  const int rounds = std::atoi(argv[1]);
  const bool prepares = argc < 3 || std::string_view(argv[2]) != "alone";
  const int differences = count_differences(rounds, prepares);
  std::printf("%d of %d processes differ\n", differences, rounds);
  return differences == 0 ? 0 : 1;
}
