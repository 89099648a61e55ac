// Copies of tensors in host memory that is used again for the next copy.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

class HostSnapshot {
 public:
  HostSnapshot();
  ~HostSnapshot();

  /// Copies `tensors`; those that are the same memory stay so. CPU tensors are copied on return. Others are being
  /// copied on a stream of their own, into pinned memory: the work that is queued on the current stream so far comes
  /// before the copy, all that is queued later comes after it. `group` keeps buffers of equal names apart.
  TensorMap take(const std::string& group, const TensorMap& tensors);

  /// Returns when all copies are in host memory; any thread may call it.
  void wait();

 private:
  struct Copies;

  std::map<std::string, at::Tensor> buffers_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace ddp
