// What every DistributedDataParallel wrapper offers besides its forward.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/logging_data.h>
#include <ddprun/detail/ddp/ddp_core.h>

namespace ddp {

/// Keeps gradients local while it lives; made by DistributedDataParallelImpl::no_sync().
class NoSyncGuard {
 public:
  /// For DdpWrapper::no_sync(), which makes it.
  explicit NoSyncGuard(std::shared_ptr<DdpCore> core);
  ~NoSyncGuard();
  NoSyncGuard(NoSyncGuard&& other) noexcept = default;
  NoSyncGuard& operator=(NoSyncGuard&&) = delete;

 private:
  std::shared_ptr<DdpCore> core_;  // null after a move
  bool previous_;
};

/// Which gradients share a bucket. The first backward decides it, and until then all are in one; on more than two ranks
/// the last bits of a sum depend on its place in its bucket. With this in a checkpoint
///
///     const ddp::TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"buckets",
///     model->bucket_layout()}}};
///
/// a run that is resumed has the buckets of the one that was interrupted from its first step on, hence its bits. With a
/// checkpoint that has no such entry (an older one, or Python's) buckets are made as in a new run. Part of the wrapper,
/// which must outlive it. Python's DDP has nothing of the kind: leave it out where ranks of the job run Python.
class BucketLayout {
 public:
  /// A checkpoint without it can still be loaded.
  static constexpr bool kMayBeMissing = true;

  /// For the wrapper, which makes it.
  explicit BucketLayout(DdpCore& core) : core_(core) {}

  /// Text; the buckets of the next step. Not a collective.
  std::string save() const { return core_.bucket_layout(); }
  /// Call on all ranks alike, before the first forward; later, and with kAutoBucketCap, it is without effect. Throws
  /// std::invalid_argument for text of another kind or of another model, and then changes
  /// nothing.
  void load(const std::string& text) { core_.use_bucket_layout(text); }

 private:
  DdpCore& core_;
};

/// A base of DistributedDataParallelImpl and UntypedDistributedDataParallel.
class DdpWrapper {
 public:
  /// While the returned guard lives, forwards and their backwards accumulate gradients locally, without communication;
  /// the first backward after it reduces the sum. The forward decides: the backward of one that ran before is reduced
  /// inside, too, and the backward of one that ran inside stays local afterwards. Guards nest.
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
