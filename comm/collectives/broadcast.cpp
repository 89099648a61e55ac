#include <torch/csrc/distributed/c10d/comm.hpp>

#include "comm/collectives/begin.h"
#include "comm/collectives/collective_call.h"
#include "comm/group/argument_checks.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace detail {

Started begin_broadcast(const at::Tensor& tensor, int root, const GroupHandle& group, const BeginOptions& begin) {
  const char* const name = begin.name("broadcast");
  detail::check_tensor(tensor, group, name);
  detail::check_rank(root, "root", group, name);
  auto settings = detail::call_options<c10d::BroadcastOptions>(begin.options, begin.async, group, name);
  settings.rootRank = root;
  std::vector<at::Tensor> tensors{tensor};
  return detail::start({.operation = name,
                        .how = with_note("root " + std::to_string(root), begin),
                        .tensors = tensors,
                        .is_waited_for = !begin.async},
                       group, [&](c10d::ProcessGroup& c10d) { return c10d.broadcast(tensors, settings); });
}

}  // namespace detail

void broadcast(at::Tensor tensor, int root, const GroupHandle& group, const CollectiveOptions& options) {
  detail::begin_broadcast(tensor, root, group, {.options = options, .async = false})->wait();
}

Pending<void> broadcast_async(at::Tensor tensor, int root, const GroupHandle& group, const CollectiveOptions& options) {
  return Pending<void>(detail::begin_broadcast(tensor, root, group, {.options = options}));
}

void broadcast_coalesced(const std::vector<at::Tensor>& tensors, int root, const GroupHandle& group,
                         int64_t buffer_bytes) {
  detail::check_rank(root, "root", group, "broadcast_coalesced");
  if (buffer_bytes < 1) {
    detail::refuse(group, "broadcast_coalesced",
                   "expected a buffer of at least 1 byte, got " + std::to_string(buffer_bytes));
  }
  detail::GroupState& state = group.state();
  static_cast<void>(state.group("broadcast_coalesced"));  // throws if the group is closed
  if (tensors.empty()) return;
  for (const at::Tensor& tensor : tensors) detail::check_unpackable(tensor, group, "broadcast_coalesced");
  detail::start(
      {.operation = "broadcast", .how = "root " + std::to_string(root), .tensors = tensors, .is_waited_for = true},
      group,
      [&](c10d::ProcessGroup&) {
        const auto bytes = static_cast<size_t>(buffer_bytes);
        c10d::broadcast_coalesced(state.group("broadcast"), tensors, bytes, root);
        return detail::WorkPtr();
      })
      ->wait();
}

}  // namespace ddp
