#include "comm/group/group_backends.h"

#include "comm/group/group_state.h"

namespace ddp::detail {

const BackendMap& backends_of(const GroupHandle& group) {
  return group.state().backends();
}

const BackendTraits* backend_for(const GroupHandle& group, c10::Device device) {
  const BackendMap& backends = backends_of(group);
  if (device.is_cpu()) return backends.cpu;
  return device.is_cuda() ? backends.cuda : nullptr;
}

}  // namespace ddp::detail
