#include "comm/core/backend_choice.h"

namespace ddp {

std::string default_cpu_backend(const EnvironmentLookup& lookup) {
  const auto named = lookup("DDPRUN_CPU_BACKEND");
  return named && !named->empty() ? *named : "shm";
}

BackendMap choose_backends(const std::string& named, const RanksToConnect& ranks, const BackendList& known) {
  if (!named.empty()) return parse_backend_map(named, known);
  if (ranks.is_single_process) return parse_backend_map("local", known);
  const bool has_cuda = ranks.have_cuda_device_each();
  return parse_backend_map(has_cuda ? "cpu:" + ranks.on_cpu + ",cuda:nccl" : ranks.on_cpu, known);
}

bool can_connect(const BackendMap& backends, int world_size) {
  return world_size == 1 || backends.with(&BackendTraits::for_one_rank) == nullptr;
}

}  // namespace ddp
