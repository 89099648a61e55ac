#include "comm/collectives/collective_call.h"
#include "comm/core/graph_capture.h"
#include "comm/group/group_state.h"
#include "ddprun/comm/collectives.h"

namespace ddp {

void barrier(const GroupHandle& group, const CollectiveOptions& options) {
  detail::refuse_capture(who(group.info()) + ": barrier", "the host waits in it. Leave it out of the capture");
  detail::check_wait(options, group, "barrier");
  c10d::BarrierOptions settings;  // stays asynchronous: only then does NCCL's wait() block the host
  if (options.timeout) settings.timeout = *options.timeout;
  const bool on_cpu = detail::backends_of(group).cpu != nullptr;
  if (!on_cpu) settings.device = group.device();
  detail::start({.operation = "barrier", .is_waited_for = true}, group, [&](c10d::ProcessGroup& c10d) {
    return c10d.getBackend(on_cpu ? c10::kCPU : c10::kCUDA)->barrier(settings);
  })->wait();
}

}  // namespace ddp
