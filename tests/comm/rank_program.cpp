// One rank of a job, for process_group_test.cpp:
//
//     rank_program WHAT [--timeout_ms N] [--backend NAME] [--init URL]
//
// Prints one line per step to standard output; errors go the way that every program of ours takes, through report().
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>

#include "comm/backends/backend_types.h"
#include "tests/comm/counting_backend.h"

namespace {

using ddp::ProcessGroup;
using ddp::ProcessGroupOptions;

void print_sum(const ProcessGroup& group) {
  at::Tensor sum = at::full({3}, static_cast<float>(group.rank() + 1));
  ddp::all_reduce(sum, group);
  std::printf("rank %d of %d sum %g backend %s\n", group.rank(), group.size(), sum[2].item<double>(),
              group.backend().c_str());
}

// The file number of the memory that this process shares with other ranks; 0: none.
unsigned long shared_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("ddprun ranks") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string skipped;
    for (int i = 0; i < 4; ++i) fields >> skipped;  // addresses, rights, offset, device
    unsigned long number = 0;
    fields >> number;
    return number;
  }
  return 0;
}

void tell_memory(const ProcessGroupOptions& options) {
  const ProcessGroup group = ddp::init_process_group(options);
  const at::Tensor own = at::full({100'003}, static_cast<float>(group.rank() + 1));
  const auto last = [](const at::Tensor& tensor) { return tensor[-1].item<double>(); };
  const at::Tensor sum = own.clone();
  ddp::all_reduce(sum, group);
  const at::Tensor average = own.clone();
  ddp::all_reduce(average, group, ddp::ReduceOp::kAvg);
  const at::Tensor from_last = own.clone();
  ddp::broadcast(from_last, group.size() - 1, group);
  ddp::barrier(group);
  std::printf("rank %d of %d sum %g average %g broadcast %g backend %s memory %lu\n", group.rank(), group.size(),
              last(sum), last(average), last(from_last), group.backend().c_str(), shared_memory());
}

// Over a backend that this program adds.
void join_over_own_backend(const ProcessGroupOptions& options) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  ddp::detail::register_backend(ddp::test::counting_backend("counting", calls));
  const ProcessGroup group = ddp::init_process_group(options);
  print_sum(group);
  std::printf("%d calls\n", calls->load());
}

void join(const ProcessGroupOptions& options) {
  const ProcessGroup group = ddp::init_process_group(options);
  print_sum(group);
}

// Rank 0 returns at once, while the others still live.
void rank0_leaves_first(const ProcessGroupOptions& options) {
  const ProcessGroup group = ddp::init_process_group(options);
  print_sum(group);
  if (group.rank() != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void form_three_groups(const ProcessGroupOptions& options) {
  for (int round = 0; round < 3; ++round) {
    ProcessGroup group = ddp::init_process_group(options);
    print_sum(group);
    group.close();
    group.close();
  }
}

[[noreturn]] void fail_while_others_wait(const ProcessGroupOptions& options, int failing_rank) {
  const ProcessGroup group = ddp::init_process_group(options);
  ddp::barrier(group);
  if (group.rank() == failing_rank) throw std::runtime_error("the data of this rank is bad");
  print_sum(group);
  throw std::logic_error("the collective ended although a rank had failed");
}

// The counterpart of a rank that runs Python, see process_group_test.cpp.
void meet_python(const ProcessGroupOptions& options) {
  const ProcessGroup group = ddp::init_process_group(options);
  const auto both = ddp::new_group(group, {0, 1});
  const auto alone = ddp::new_group(group, {1});
  at::Tensor sum = at::full({3}, 5.0F);
  ddp::all_reduce(sum, *both);
  at::Tensor message = at::zeros({2});
  ddp::recv(message, 0, group, 4);
  const at::Tensor parts = ddp::all_to_all(at::full({4}, 20.0F), *both);
  const at::Tensor gathered = ddp::gather(at::ones({1}), 0, group);
  ddp::all_reduce(sum, *alone);
  std::printf("sum %g message %g parts %g %g root %d alone %d\n", sum[0].item<double>(), message[1].item<double>(),
              parts[0].item<double>(), parts[3].item<double>(), gathered.defined() ? 1 : 0, alone->size());
}

// The rank that fails leaves a collective behind that can never end.
void fail_with_a_collective_in_flight(const ProcessGroupOptions& options) {
  const ProcessGroup group = ddp::init_process_group(options);
  ddp::barrier(group);
  if (group.rank() == 1) {
    // gloo's thread waits for the other rank. (One of this program's own, not yet in the collective, may run on while
    // main's statics are destroyed: no library could help that.)
    [[maybe_unused]] auto* in_flight = new auto(ddp::all_reduce_async(at::ones({1}), group));
    throw std::runtime_error("the data of this rank is bad");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ddp::barrier(group);
}

ProcessGroupOptions read_options(int count, char** arguments) {
  ProcessGroupOptions options;
  for (int i = 2; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    if (name == "--timeout_ms") options.timeout = std::chrono::milliseconds(std::atoi(arguments[i + 1]));
    if (name == "--backend") options.backend = arguments[i + 1];
    if (name == "--init") options.init_method = arguments[i + 1];
  }
  return options;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::string what = count > 1 ? arguments[1] : "";
  const ProcessGroupOptions options = read_options(count, arguments);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (what == "join") {
    join(options);
  } else if (what == "tell_memory") {
    tell_memory(options);
  } else if (what == "count") {
    join_over_own_backend(options);
  } else if (what == "meet_python") {
    meet_python(options);
  } else if (what == "rank0_leaves_first") {
    rank0_leaves_first(options);
  } else if (what == "form_three_groups") {
    form_three_groups(options);
  } else if (what == "rank0_fails") {
    fail_while_others_wait(options, 0);
  } else if (what == "rank1_fails") {
    fail_while_others_wait(options, 1);
  } else if (what == "rank1_fails_in_flight") {
    fail_with_a_collective_in_flight(options);
  } else {
    throw std::invalid_argument("unknown job '" + what + "'");
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
