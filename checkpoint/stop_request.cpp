#include "ddprun/checkpoint/stop_request.h"

#include <ATen/ops/scalar_tensor.h>
#include <signal.h>

#include <atomic>
#include <mutex>

#include <ddprun/comm/collectives.h>

#include "comm/group/group_state.h"

namespace ddp {
namespace {

// A signal handler can reach nothing else than what is static.
std::atomic<bool>& stop_flag() {
  static_assert(std::atomic<bool>::is_always_lock_free);
  static std::atomic<bool> requested{false};
  return requested;
}

void remember(int) {
  stop_flag().store(true);
}

}  // namespace

void install_stop_handlers() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    stop_flag();  // constructed here, not in the handler
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
      struct sigaction before {};
      if (sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
      struct sigaction action {};
      action.sa_handler = remember;
      action.sa_flags = SA_RESTART;
      sigemptyset(&action.sa_mask);
      sigaction(number, &action, nullptr);
    }
  });
}

bool told_to_stop() {
  install_stop_handlers();
  return stop_flag().load();
}

bool stop_requested(const GroupHandle& group) {
  const bool is_requested = told_to_stop();
  if (group.size() == 1) return is_requested;
  const auto device = detail::backends_of(group).cpu == nullptr ? group.device() : c10::Device(c10::kCPU);
  auto requested = at::scalar_tensor(is_requested ? 1 : 0, at::TensorOptions(at::kInt).device(device));
  all_reduce(requested, group, ReduceOp::kMax);
  return requested.item<int>() != 0;
}

}  // namespace ddp
