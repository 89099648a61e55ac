// Which parameters of a sharded model are in memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::test {

/// Whether a tensor of a sharded module has memory; without it a read throws from LibTorch 2.15 on.
inline bool has_memory(const at::Tensor& tensor) {
  try {
    return tensor.storage().data() != nullptr;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace ddp::test
