// Two ranks that make each synchronous collective, to which rank 1 comes late: late_calls_program MILLISECONDS. Prints
// what rank 0 has waited for rank 1 by the progress page, in milliseconds: "broadcast 31".
#include <ATen/ops/ones.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>

#include "base/progress/own_page.h"

namespace {

uint64_t waited() {
  const auto& waited = ddp::detail::own_page().page().waited;
  return std::accumulate(waited.begin(), waited.end(), uint64_t{0},
                         [](uint64_t sum, const auto& of_phase) { return sum + of_phase.load(); });
}

}  // namespace

int main(int, char** argv) try {
  const std::chrono::milliseconds late(std::atoi(argv[1]));
  const auto group = ddp::init_process_group();
  const at::Tensor tensor = at::ones({2});
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"all_reduce", [&] { ddp::all_reduce(tensor, group); }},
      {"broadcast", [&] { ddp::broadcast(tensor, 1, group); }},
      {"reduce", [&] { ddp::reduce(tensor, 0, group); }},
      {"all_gather", [&] { ddp::all_gather(tensor, group); }},
      {"gather", [&] { ddp::gather(tensor, 0, group); }},
      {"scatter",
       [&] {
         const std::vector<at::Tensor> parts(group.rank() == 1 ? 2 : 0, tensor);
         ddp::scatter(at::ones({2}), parts, 1, group);
       }},
      {"reduce_scatter", [&] { ddp::reduce_scatter(tensor, group); }},
      {"all_to_all", [&] { ddp::all_to_all(tensor, group); }},
      {"barrier", [&] { ddp::barrier(group); }},
      {"broadcast_string", [&] { ddp::broadcast_string("text", 1, group); }},
  };
  for (const auto& [name, call] : calls) {
    ddp::barrier(group);
    const uint64_t before = waited();
    if (group.rank() == 1) std::this_thread::sleep_for(late);
    call();
    if (group.rank() == 0)
      std::printf("%s %llu\n", name.c_str(), static_cast<unsigned long long>((waited() - before) / 1000));
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
