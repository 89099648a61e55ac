// The gradient buckets of a wrapped model, in a checkpoint.
#pragma once

#include <string>

#include <ddprun/ddp/ddp_core.h>

namespace ddp {

/// Which gradients share a bucket. The first backward tells it, and until then all are in one; on more than two ranks
/// the last bits of a sum depend on its place in its bucket. With this in a checkpoint
///
///     const ddp::TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"buckets",
///     model->bucket_layout()}}};
///
/// a run that is resumed has the buckets of the one that was interrupted from its first step on, hence its bits. From a
/// checkpoint that has none, an older one or Python's, buckets begin anew. Part of the wrapper, which must outlive it.
/// Python's DDP has nothing of the kind: leave it out where ranks of the job run Python.
class BucketLayout {
 public:
  static constexpr bool kMayBeMissing = true;

  explicit BucketLayout(DdpCore& core) : core_(core) {}

  /// Text; the buckets of the next step. Not a collective.
  std::string save() const { return core_.bucket_layout(); }
  /// Call on all ranks alike, before the first forward; later, and with kAutoBucketCap, it is without effect. Throws
  /// std::invalid_argument for a text that is none, or one of another model, and changes nothing then.
  void load(const std::string& text) { core_.use_bucket_layout(text); }

 private:
  DdpCore& core_;
};

}  // namespace ddp
