// Internal: tensors as shared memory's operations take them: bytes, and numbers of a kind.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/shm/collectives.h"
#include "comm/shm/reduction.h"

namespace ddp::detail {

/// Its numbers; throws c10::Error for a dtype that collectives do not add up.
shm::DType dtype_of(const at::Tensor& tensor);
/// Throws c10::Error for one that the numbers or this backend do not have.
shm::Operator operator_of(const c10d::ReduceOp& op, const at::Tensor& tensor);

/// The same memory, complex numbers as pairs of real ones; throws c10::Error for an `op` that complex ones do not have.
at::Tensor real_numbers(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// The one tensor of a list, dense and on the CPU; throws c10::Error else.
at::Tensor only(const std::vector<at::Tensor>& tensors, const char* operation);
void check_dense(const at::Tensor& tensor, const char* operation);
/// Throws c10::Error unless `tensors` are as many as `count` and each has `bytes` bytes.
void check_list(const std::vector<at::Tensor>& tensors, size_t count, size_t bytes, const char* operation);

inline std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

/// One row of `whole` for each rank.
std::vector<at::Tensor> rows_of(const at::Tensor& whole, int64_t ranks);

/// What each rank sends or receives of `tensor`: `splits[rank]` of its rows, or equally many if `splits` is empty.
std::vector<shm::Piece> pieces_of(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks);

void check_root(int64_t root, int ranks, const char* operation);

/// A graph that has saved one of these tensors finds that its values have changed: as with gloo, which copies into the
/// outputs of all_gather, gather, reduce_scatter and all_to_all of lists.
void note_written(const std::vector<at::Tensor>& outputs);

/// Contiguous copies of tensors with gaps or another order.
class ContiguousCopies {
 public:
  /// To be read.
  at::Tensor readable(const at::Tensor& tensor);
  /// To be written, or both; copy_back() brings the numbers to where they belong.
  at::Tensor writable(const at::Tensor& tensor);
  bool is_needed() const { return !copies_.empty(); }
  void copy_back() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // the tensor, its contiguous copy
};

}  // namespace ddp::detail
