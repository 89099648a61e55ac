// Ranks as threads of one process: a job without a launcher, for experiments, tests and single-process programs.
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
  /// several ranks share a CUDA device, else "shm".
  std::string backend{};
  /// Longest wait for a peer. Default: 30 minutes.
  std::optional<std::chrono::milliseconds> timeout{};
  /// Rank i's device. Default: CUDA device i if there are at least as many devices as ranks, else the CPU for all
  /// ranks.
  std::vector<c10::Device> devices{};
};

/// What spawn() throws: the first failure of a rank. The rank's own exception is nested in it
/// (std::rethrow_if_nested).
class SpawnError : public std::runtime_error {
 public:
  /// Called by spawn(); programs do not call it.
  SpawnError(int rank, const std::string& message);
  ~SpawnError() override;
  int rank() const { return rank_; }  ///< which rank failed first in time

 private:
  int rank_;
};

/// Runs `body` on `size` ranks at the same time and waits for all of them. Each rank is a thread with its own process
/// group object over an in-process store. The thread first makes its rank's device current. `body` gets the rank's
/// group, which is closed when `body` returns. Call it from one thread that is not a rank itself.
///
/// When a rank throws, the groups of the other ranks are aborted. Collectives that they start afterwards fail at once.
/// Collectives that already wait for the failed rank fail when its connections close, at the latest when the timeout
/// expires. Then SpawnError names the rank that failed first. Throws std::invalid_argument for settings that contradict
/// each other.
///
/// The threads share the state of the process: the environment, standard output, the default random generators and the
/// number of intra-op threads. Ranks that draw from a default generator at the same time get unpredictable numbers:
/// seed and build models before spawn(), or give each rank its own generator. If TORCH_FR_BUFFER_SIZE is not set,
/// spawn() sets it to 0, because LibTorch 2.11 has one flight recorder per process, which is not safe for groups in
/// several threads. Call spawn() before other threads read the environment.
void spawn(int size, const std::function<void(const GroupHandle& group)>& body, const SpawnOptions& options = {});

}  // namespace ddp
