// Measures the writes of one DistributedDataParallel step to its progress page. Prints the nanoseconds of these writes,
// as the median of 21 rounds. The model Linear(1,1) has one bucket, and therefore one collective.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string_view>

#include <ddprun/base/progress.h>

#include "base/progress/own_page.h"

namespace {

using Phase = ddp::progress::Phase;

void write_step(ddp::detail::PageGroup group, std::uint64_t number) {
  constexpr std::string_view kSignature = "all_reduce (sum) of Float [2]";
  ddp::detail::PageWriter& page = ddp::detail::own_page();
  page.enter_phase(Phase::kForward);
  page.enter_phase(Phase::kOther);
  page.enter_phase(Phase::kBackward);
  const std::uint64_t collective = page.begin_collective(group, number, kSignature, ddp::detail::page_clock());
  const std::uint64_t end = ddp::detail::page_clock();
  page.finish_collective(collective, end);
  page.add_wait(1);
  page.settle_background();
  page.enter_phase(Phase::kOther);
  ddp::detail::expect_step();
  ddp::detail::finish_expected_step();
}

}  // namespace

int main() {
  using Clock = std::chrono::steady_clock;
  constexpr int kSteps = 200'000;
  const ddp::detail::PageGroup group = ddp::detail::own_page().add_group("", 0, 2, 0);
  std::array<double, 21> rounds{};
  for (double& round : rounds) {
    const auto begin = Clock::now();
    for (int step = 0; step < kSteps; ++step) write_step(group, static_cast<std::uint64_t>(step));
    round = std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kSteps;
  }
  std::nth_element(rounds.begin(), rounds.begin() + rounds.size() / 2, rounds.end());
  std::cout << rounds[rounds.size() / 2] << '\n';
  return 0;
}
