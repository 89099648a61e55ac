// Internal: what ranks exchange about their tensors where lengths may differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

namespace ddp::detail {

struct TensorShape {
  at::ScalarType dtype{};
  std::vector<int64_t> sizes{};
};

/// Every rank's shape and dtype. Throws std::invalid_argument for a tensor without dimensions or with more than 16, and
/// std::runtime_error on every rank when dtypes or the sizes after the first differ between ranks. `operation` is the
/// caller's name for messages. Collective.
std::vector<TensorShape> all_gather_shapes(const at::Tensor& tensor, const char* operation, const GroupHandle& group,
                                           const CollectiveOptions& options);

}  // namespace ddp::detail
