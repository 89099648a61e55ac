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

/// Keeps gradients local while it exists; made by DdpWrapper::no_sync().
class NoSyncGuard {
 public:
  /// Called by DdpWrapper::no_sync(); programs do not call it.
  explicit NoSyncGuard(std::shared_ptr<DdpCore> core);
  ~NoSyncGuard();
  NoSyncGuard(NoSyncGuard&& other) noexcept = default;
  NoSyncGuard& operator=(NoSyncGuard&&) = delete;

 private:
  std::shared_ptr<DdpCore> core_;  // null after a move
  bool previous_;
};

/// Which gradients share a bucket. The first backward determines it; until then all gradients are in one bucket. On
/// more than two ranks, the last bits of a sum depend on its position in its bucket. With this entry in a checkpoint
///
///     const ddp::TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"buckets",
///     model->bucket_layout()}}};
///
/// a resumed run has the buckets of the interrupted run from its first step on, and therefore the same bits. If a
/// checkpoint has no such entry (an older one, or Python's), buckets are made as in a new run. The object is part of
/// the wrapper, which must outlive it. Python's DDP has no counterpart: do not use it if ranks of the job run Python.
class BucketLayout {
 public:
  /// A checkpoint without it can still be loaded.
  static constexpr bool kMayBeMissing = true;

  /// Called by the wrapper; programs do not call it.
  explicit BucketLayout(DdpCore& core) : core_(core) {}

  /// The buckets of the next step, as text. Not a collective.
  std::string save() const { return core_.bucket_layout(); }
  /// All ranks must call it with the same text, before the first forward; later, and with kAutoBucketCap, it has no
  /// effect. Throws std::invalid_argument, and changes nothing, for other text or a text of another model.
  void load(const std::string& text) { core_.use_bucket_layout(text); }

 private:
  DdpCore& core_;
};

/// A base of DistributedDataParallelImpl and UntypedDistributedDataParallel.
class DdpWrapper {
 public:
  /// While the returned guard lives, forwards and their backwards accumulate gradients locally, without communication;
  /// the first backward after it reduces the sum. What counts is where the forward ran: the backward of an earlier
  /// forward is reduced even inside the guard, and the backward of a forward inside stays local even after it. Guards
  /// nest.
  [[nodiscard]] NoSyncGuard no_sync() { return NoSyncGuard(core_); }

  /// Runs `body`, the training loop, on ranks with different numbers of inputs: a rank that has finished its body takes
  /// part in the reductions of the other ranks with zeros, and at the end all ranks get the model of the rank that
  /// finished last. Every rank must call it. Optimizer steps need no special treatment. A model with other collectives
  /// in its forward or backward (SyncBatchNorm) needs throw_on_early_termination, or ddp::join() with joinable() and
  /// the joinables of those collectives.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    ddp::join({core_.get()}, body, options);
  }
  /// This wrapper, for a ddp::join() with several joinables; it should be the first of them.
  Joinable& joinable() { return *core_; }

  /// Replaces the all-reduce of the buckets; once, before the first backward, the same on every rank. `name`, by
  /// default that of named_hook(), appears in logging_data(). The first backward compares the ranks' names, and throws
  /// std::runtime_error on all of them where they differ, before anything is sent.
  void register_comm_hook(CommHook hook, const std::string& name = "") {
    core_->register_comm_hook(std::move(hook), name);
  }

  /// Bucket sizes, times, unused parameters of this rank; `.table()` is text to print.
  DdpLoggingData logging_data() const { return core_->logging_data(); }

  /// Which gradients share a bucket, for TrainingState::shared: a resumed run then has the same bits as an
  /// uninterrupted one, on any number of ranks.
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
