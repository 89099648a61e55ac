// Which backends a group has: those that its user names, else the default for its ranks. No LibTorch here.
#pragma once

#include <functional>
#include <string>

#include "comm/core/backend_map.h"

namespace ddp {

/// What the choice depends on.
struct RanksToConnect {
  bool is_single_process = false;                 ///< the job's only rank, which is no thread of spawn()'s
  std::function<bool()> have_cuda_device_each{};  ///< asked only where it matters: the answer may load CUDA
  std::string on_cpu{};                           ///< what serves the CPU where nothing is named; empty: gloo
};

/// What DDPRUN_CPU_BACKEND says, for RanksToConnect::on_cpu.
std::string cpu_backend_of_environment();

/// `named` in torch.distributed's syntax. Empty: "local" for a single process, else "cpu:gloo,cuda:nccl" where each
/// rank has a CUDA device of its own and "gloo" where not, with another one in the place of gloo where
/// `ranks` say so. Throws what parse_backend_map() throws.
BackendMap choose_backends(const std::string& named, const RanksToConnect& ranks, const BackendList& known);

/// Whether so many ranks can be connected by these backends: those for one rank move nothing.
bool can_connect(const BackendMap& backends, int world_size);

}  // namespace ddp
