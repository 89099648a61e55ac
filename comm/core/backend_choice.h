// Which backends a group has: those that its user names, else the default for its ranks. No LibTorch here.
#pragma once

#include <functional>
#include <string>

#include <ddprun/base/rank_info.h>

#include "comm/core/backend_map.h"

namespace ddp {

/// What the choice depends on.
struct RanksToConnect {
  bool is_single_process = false;                 ///< the job's only rank, which is no thread of spawn()'s
  std::function<bool()> have_cuda_device_each{};  ///< asked only where it matters: the answer may load CUDA
  std::string on_cpu = "gloo";                    ///< what serves the CPU where nothing is named
};

/// For RanksToConnect::on_cpu: what DDPRUN_CPU_BACKEND says, else "shm", which takes gloo itself where ranks cannot
/// share memory.
std::string default_cpu_backend(const EnvironmentLookup& lookup = process_environment());

/// `named` in torch.distributed's syntax. Empty: "local" for a single process, else "cpu:X,cuda:nccl" where each rank
/// has a CUDA device of its own and "X" where not, X being what `ranks` say. Throws what parse_backend_map() throws.
BackendMap choose_backends(const std::string& named, const RanksToConnect& ranks, const BackendList& known);

/// Whether so many ranks can be connected by these backends: those for one rank move nothing.
bool can_connect(const BackendMap& backends, int world_size);

}  // namespace ddp
