#include "comm/backends/sparse_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

namespace ddp::detail {

// Ranks have different numbers of elements, so these are exchanged first; the parts are padded to the longest.
at::Tensor sum_of_sparse(const at::Tensor& tensor, const std::function<at::Tensor(at::Tensor)>& gathered) {
  const at::Tensor own = tensor.detach().coalesce();
  const at::Tensor counts = gathered(at::tensor({own._nnz()}, at::kLong));
  const int64_t most = std::max<int64_t>(1, counts.max().item<int64_t>());
  const at::Tensor indices = own._indices();
  const at::Tensor values = own._values();
  const at::Tensor padded_indices = at::empty({most, indices.size(0)}, indices.options()).zero_();
  padded_indices.narrow(0, 0, own._nnz()).copy_(indices.t());
  std::vector<int64_t> value_sizes = values.sizes().vec();
  value_sizes[0] = most;
  const at::Tensor padded_values = at::empty(value_sizes, values.options()).zero_();
  padded_values.narrow(0, 0, own._nnz()).copy_(values);
  const at::Tensor all_indices = gathered(padded_indices);
  const at::Tensor all_values = gathered(padded_values);
  at::Tensor sum;
  for (int64_t rank = 0; rank < counts.size(0); ++rank) {
    const int64_t count = counts[rank].item<int64_t>();
    const at::Tensor part = at::sparse_coo_tensor(all_indices[rank].narrow(0, 0, count).t().contiguous(),
                                                  all_values[rank].narrow(0, 0, count), own.sizes());
    sum = rank == 0 ? part : sum.add(part);
  }
  return sum;
}

}  // namespace ddp::detail
