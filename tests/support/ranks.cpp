#include "tests/support/ranks.h"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "comm/backends/backend_types.h"
#include "comm/backends/gloo.h"
#include "comm/backends/shm.h"
#include "comm/group/group_state.h"
#include "comm/group/spawn_ranks.h"
#include "tests/support/late_backend.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp::test {
namespace {

// As init_process_group() does: gloo writes to sockets whose peer may have gone.
[[gnu::constructor]] void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

// LibTorch 2.11's flight recorder is one object a process and writes to one of its maps without a lock, so groups in
// several threads crash now and then. It reads this variable at its first use.
[[gnu::constructor]] void turn_flight_recorder_off() {
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
}

detail::BackendType hosts_backend() {
  return {.traits = {.name = "hosts", .serves_cpu = true, .receives_from_any = true, .dtypes = detail::gloo_dtypes()},
          .make = [](const detail::GroupPlan& plan, const auto& store) {
            return detail::make_shm(plan, store, std::to_string(plan.info.rank % 2));
          }};
}

[[gnu::constructor]] void know_backends() {
  detail::register_backend(late_backend());
  detail::register_backend(hosts_backend());
}

std::vector<c10::Device> devices_of_ranks(int size) {
  std::vector<c10::Device> devices(static_cast<size_t>(size), c10::Device(c10::kCPU));
  for (int rank = 0; is_on_devices() && rank < size; ++rank) {
    devices[static_cast<size_t>(rank)] = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank));
  }
  return devices;
}

RankInfo info_of(int rank, int size) {
  return {.rank = rank, .world_size = size, .local_rank = rank, .local_world_size = size};
}

}  // namespace

const char* backend_of(Wire wire) {
  if (is_on_devices()) return "cpu:shm,cuda:nccl";
  switch (wire) {
    case Wire::kGloo:
      return "cpu:gloo";
    case Wire::kShm:
      return "shm";
    case Wire::kHosts:
      return "hosts";
    case Wire::kLate:
      break;
  }
  return "late";
}

std::vector<Wire> wires(std::vector<Wire> of_cpu) {
  if (is_on_devices()) of_cpu.resize(1, Wire::kGloo);
  return of_cpu;
}

void run_ranks(int size, const std::function<void(const GroupHandle& group)>& body, const RankOptions& options) {
  const SpawnOptions spawn_options{
      .backend = backend_of(options.wire), .timeout = options.timeout, .devices = devices_of_ranks(size)};
  try {
    // As between processes: what a rank says when another one fails is under test.
    detail::spawn_ranks(size, body, spawn_options, {.aborts_others = false});
  } catch (const SpawnError& error) {
    report_rank_checks();
    try {
      std::rethrow_if_nested(error);
    } catch (const RequirementFailed&) {
      if (!is_main_thread()) throw;
      FAIL("a rank ended where a requirement did not hold");
    }
  }
  report_rank_checks();
}

GroupHandle unconnected_rank(int rank, int size) {
  return GroupHandle(std::make_shared<detail::GroupState>(detail::GroupState::Parts{.info = info_of(rank, size)}));
}

bool exchanges_directly(const GroupHandle& group) {
  return group.state().all_reduce_traits().in_wait == detail::AllReduceTraits::InWait::kSmallFloats;
}

}  // namespace ddp::test
