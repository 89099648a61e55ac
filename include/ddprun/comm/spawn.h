// Ranks as threads of one process: a job without a launcher, for trying things out, tests and single-process programs.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Settings of spawn(), all optional.
struct SpawnOptions {
  /// As ProcessGroupOptions::backend. Default: "cpu:shm,cuda:nccl" when the ranks have a CUDA device each, "gloo" when
  /// they share some, else "shm".
  std::string backend{};
  /// Longest wait for a peer. Default: 30 minutes.
  std::optional<std::chrono::milliseconds> timeout{};
  /// Rank i's device. Default: CUDA device i where there are as many as ranks, else the CPU for all.
  std::vector<c10::Device> devices{};
};

/// What spawn() throws: the first failure of a rank. The rank's own exception is nested in it
/// (std::rethrow_if_nested).
class SpawnError : public std::runtime_error {
 public:
  /// For spawn(), which throws it.
  SpawnError(int rank, const std::string& message);
  ~SpawnError() override;
  int rank() const { return rank_; }  ///< which rank failed first in time

 private:
  int rank_;
};

/// Runs `body` on `size` ranks at once, each a thread with a process group of its own over an in-process store, and
/// waits for all of them. Each thread's current device is its rank's before anything else happens. `body` gets the
/// rank's group, which closes when it returns. Call it from one thread, on no rank.
///
/// When a rank throws, the other ranks' groups are aborted: collectives that they start fail at once, and those that
/// wait for the failed rank when its connections close, at the latest at the timeout. Then SpawnError names the rank
/// that failed first. Throws std::invalid_argument for settings that contradict each other.
///
/// Threads share what belongs to the process: the environment, standard output, the default random generators (ranks
/// that draw at once get whatever comes: seed and build models before, or give each rank a generator of its own) and
/// the number of intra-op threads. Sets TORCH_FR_BUFFER_SIZE=0 where it is unset, because LibTorch 2.11's flight
/// recorder is one object a process and not safe for groups in several threads; call it before other threads read the
/// environment.
void spawn(int size, const std::function<void(const GroupHandle& group)>& body, const SpawnOptions& options = {});

}  // namespace ddp
