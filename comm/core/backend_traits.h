// What the library has to know of a backend to choose it and to use it; how one is made stands in comm/backends/. No
// LibTorch here.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddp {

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
  bool receives_from_any = false;   ///< a message may be received without naming its sender
  /// The dtypes that its collectives take, in LibTorch's names, complex ones as pairs of these; empty: it tells itself.
  std::vector<std::string> dtypes{};
  std::chrono::milliseconds default_timeout = std::chrono::minutes(30);
};

/// Backends that can be named; they outlive whoever refers to them.
using BackendList = std::vector<const BackendTraits*>;

}  // namespace ddp
