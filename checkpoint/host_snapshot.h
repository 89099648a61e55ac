// Copies of tensors in host memory that is used again for the next copy.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors.h>

#include "checkpoint/copy_streams.h"

namespace ddp {

class HostSnapshot {
 public:
  /// Copies `tensors`; those that are the same memory stay so. CPU tensors are copied on return. Others are being
  /// copied on a stream of their own, into pinned memory: the work that is queued on the current stream so far comes
  /// before the copy, all that is queued later comes after it. `group` keeps buffers of equal names apart.
  TensorMap take(const std::string& group, const TensorMap& tensors);

  /// Returns when all copies are in host memory; any thread may call it.
  void wait();

 private:
  std::map<std::string, at::Tensor> buffers_;
  CopyStreams streams_;
  std::vector<c10::Event> ends_;  // of copies that are under way
};

}  // namespace ddp
