// Which backend serves which device, in torch.distributed's syntax: those that the user names, else the default for the
// ranks. Does not use LibTorch.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

namespace ddp {

/// What the library has to know of a backend to choose it and to use it; comm/backends/ makes them.
struct BackendTraits {
  std::string name{};       ///< in ProcessGroupOptions::backend: "nccl"
  std::string title{name};  ///< in sentences: "NCCL"
  bool serves_cpu = false;
  bool serves_cuda = false;
  bool for_one_rank = false;        ///< moves nothing: for a single process, which then takes its GPU if there is one
  bool wait_blocks = true;          ///< wait() holds the host until the result is there; else the stream waits
  bool needs_cuda = false;          ///< the CUDA part, and for each rank a CUDA device of its own
  bool needs_torch_store = false;   ///< uses the job's store in ways that only torch's own client can serve
  bool sends_on_device = false;     ///< messages between two ranks may be CUDA tensors
  bool coalesces_messages = false;  ///< starts a list of messages as one call
  bool joins_python = false;        ///< ranks that run Python may be members, so calls must be torch.distributed's
  bool receives_from_any = false;   ///< a message may be received without naming its sender
  /// The dtypes that its collectives take, in LibTorch's names, complex ones as pairs of these; empty: the backend
  /// checks them itself.
  std::vector<std::string> dtypes{};
  std::chrono::milliseconds default_timeout = std::chrono::minutes(30);
};

/// Backends that can be named; they outlive all references to them.
using BackendList = std::vector<const BackendTraits*>;

/// A backend per device; null means that tensors on that device cannot be communicated.
struct BackendMap {
  const BackendTraits* cpu = nullptr;
  const BackendTraits* cuda = nullptr;

  bool operator==(const BackendMap&) const = default;

  /// The text that parse_backend_map() reads: one name where that says all, else "cpu:gloo,cuda:nccl".
  std::string text() const;
  /// A backend that has the trait, CUDA's before the CPU's, or null.
  const BackendTraits* with(bool BackendTraits::*trait) const;
  /// The longest of the backends' default timeouts.
  std::chrono::milliseconds default_timeout() const;
};

/// Reads the name of a known backend ("gloo": all devices that it serves) or a list such as "cpu:gloo,cuda:nccl". Those
/// for one rank stand alone. Throws std::invalid_argument that names the bad part.
BackendMap parse_backend_map(const std::string& text, const BackendList& known);

/// What the choice depends on.
struct RanksToConnect {
  bool is_single_process = false;                 ///< the job's only rank, which is not a thread of spawn()'s
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
