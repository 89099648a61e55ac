#include "comm/core/backend_choice.h"

#include <cstdlib>

namespace ddp {

std::string cpu_backend_of_environment() {
  const char* name = std::getenv("DDPRUN_CPU_BACKEND");
  return name == nullptr ? "" : name;
}

BackendMap choose_backends(const std::string& named, const RanksToConnect& ranks, const BackendList& known) {
  if (!named.empty()) return parse_backend_map(named, known);
  if (ranks.is_single_process) return parse_backend_map("local", known);
  const bool has_cuda = ranks.have_cuda_device_each();
  if (ranks.on_cpu.empty()) return parse_backend_map(has_cuda ? "cpu:gloo,cuda:nccl" : "gloo", known);
  return parse_backend_map("cpu:" + ranks.on_cpu + (has_cuda ? ",cuda:nccl" : ""), known);
}

bool can_connect(const BackendMap& backends, int world_size) {
  return world_size == 1 || backends.with(&BackendTraits::for_one_rank) == nullptr;
}

}  // namespace ddp
