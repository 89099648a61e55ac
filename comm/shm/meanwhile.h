// Internal: what a caller does beside an operation that it waits for. No LibTorch.
#pragma once

namespace ddp::shm {

class Meanwhile {
 public:
  /// This rank has told the others its part. Called once, and not where the operation fails before that.
  virtual void told() noexcept = 0;
  /// Afterwards, where the others have not come at once.
  virtual void late() noexcept = 0;

 protected:
  ~Meanwhile() = default;
};

}  // namespace ddp::shm
