// Internal: what a caller does beside an operation that it waits for. No LibTorch.
#pragma once

namespace ddp::shm {

class Meanwhile {
 public:
  /// This rank has told the others its part. Called once at most.
  virtual void told() noexcept = 0;
  /// The others have not come at once; this rank need not have told them its part yet.
  virtual void late() noexcept = 0;

 protected:
  ~Meanwhile() = default;
};

}  // namespace ddp::shm
