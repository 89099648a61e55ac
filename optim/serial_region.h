// Keeps LibTorch's parallel loops in the calling thread.
#pragma once

namespace ddp::optim {

/// During its lifetime, loops that LibTorch would spread over threads run in the calling thread alone. The loops of
/// other threads are not affected. The fused kernels open a parallel region for every tensor, however small, and waking
/// threads costs more than a small tensor's whole step (far more on a busy machine).
class SerialRegion {
 public:
  SerialRegion();
  ~SerialRegion();
  SerialRegion(const SerialRegion&) = delete;
  SerialRegion& operator=(const SerialRegion&) = delete;

 private:
  int threads_ = 1;
};

}  // namespace ddp::optim
