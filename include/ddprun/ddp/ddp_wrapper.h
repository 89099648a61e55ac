// What every DistributedDataParallel wrapper offers besides its forward.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/logging_data.h>
#include <ddprun/ddp/bucket_layout.h>
#include <ddprun/ddp/ddp_core.h>

namespace ddp {

/// A base of DistributedDataParallelImpl and UntypedDistributedDataParallel.
class DdpWrapper {
 public:
  /// While the returned guard lives, forwards and their backwards accumulate gradients locally, without communication;
  /// the first backward after it reduces the sum. The forward has to be inside as well as the backward. Guards nest.
  [[nodiscard]] NoSyncGuard no_sync() { return NoSyncGuard(core_); }

  /// Runs `body`, the training loop, on ranks with different numbers of inputs: a rank that has finished its body
  /// takes part in the reductions of the others with zeros, and at the end all take the model of the last one. Every
  /// rank must call it. Optimizer steps need nothing of the kind. A model with other collectives in its forward or
  /// backward (SyncBatchNorm) needs throw_on_early_termination, or ddp::join() with joinable() and theirs.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    ddp::join({core_.get()}, body, options);
  }
  /// This wrapper for a ddp::join() with several joinables, of which it should be the first.
  Joinable& joinable() { return *core_; }

  /// Replaces the all-reduce of the buckets; once, before the first backward, the same on every rank. `name`, by
  /// default that of named_hook(), appears in logging_data(). The first backward compares the ranks' names, and throws
  /// std::runtime_error on all of them where they differ, before anything is sent.
  void register_comm_hook(CommHook hook, const std::string& name = "") {
    core_->register_comm_hook(std::move(hook), name);
  }

  /// Bucket sizes, times, unused parameters of this rank; `.table()` is text to print.
  DdpLoggingData logging_data() const { return core_->logging_data(); }

  /// Which gradients share a bucket, for TrainingState::shared: a resumed run then has the bits of an undisturbed one
  /// on any number of ranks.
  BucketLayout& bucket_layout() { return bucket_layout_; }

 protected:
  explicit DdpWrapper(std::shared_ptr<DdpCore> core) : core_(std::move(core)) {}
  ~DdpWrapper() = default;
  DdpWrapper(DdpWrapper&&) = delete;
  DdpWrapper& operator=(DdpWrapper&&) = delete;

  DdpCore& core() { return *core_; }

 private:
  std::shared_ptr<DdpCore> core_;
  BucketLayout bucket_layout_{*core_};
};

}  // namespace ddp
