#include "comm/core/backend_choice.h"

namespace ddp {

BackendMap choose_backends(const std::string& named, const RanksToConnect& ranks, const BackendList& known) {
  if (!named.empty()) return parse_backend_map(named, known);
  if (ranks.is_single_process) return parse_backend_map("local", known);
  return parse_backend_map(ranks.have_cuda_device_each() ? "cpu:gloo,cuda:nccl" : "gloo", known);
}

bool can_connect(const BackendMap& backends, int world_size) {
  return world_size == 1 || backends.with(&BackendTraits::for_one_rank) == nullptr;
}

}  // namespace ddp
