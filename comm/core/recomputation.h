// Whether the calling thread runs a part of a forward again for a backward (recompute/): a wrapper's forward must not
// be in it. Does not use LibTorch.
#pragma once

namespace ddp {

/// While it lives, the calling thread recomputes. May be nested.
class RecomputationScope {
 public:
  RecomputationScope() noexcept;
  ~RecomputationScope();
  RecomputationScope(const RecomputationScope&) = delete;
  RecomputationScope& operator=(const RecomputationScope&) = delete;
};

/// Whether a scope lives in the calling thread.
bool thread_recomputes() noexcept;

}  // namespace ddp
