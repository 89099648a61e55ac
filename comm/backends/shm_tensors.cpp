#include "comm/backends/shm_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>

namespace ddp::detail {

shm::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return shm::DType::kFloat32;
    case at::kDouble:
      return shm::DType::kFloat64;
    case at::kHalf:
      return shm::DType::kFloat16;
    case at::kBFloat16:
      return shm::DType::kBFloat16;
    case at::kChar:
      return shm::DType::kInt8;
    case at::kByte:
    case at::kBool:
      return shm::DType::kUInt8;
    case at::kInt:
      return shm::DType::kInt32;
    case at::kLong:
      return shm::DType::kInt64;
    default:
      TORCH_CHECK(false, "Invalid scalar type: shm does not reduce ", tensor.scalar_type());
  }
}

shm::Operator operator_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return shm::Operator::kSum;
    case c10d::ReduceOp::AVG:
      TORCH_CHECK(tensor.is_floating_point(), "shm: the average needs a floating-point dtype, got ",
                  tensor.scalar_type());
      return shm::Operator::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return shm::Operator::kProduct;
    case c10d::ReduceOp::MIN:
      return shm::Operator::kMin;
    case c10d::ReduceOp::MAX:
      return shm::Operator::kMax;
    case c10d::ReduceOp::BAND:
      return shm::Operator::kAnd;
    case c10d::ReduceOp::BOR:
      return shm::Operator::kOr;
    case c10d::ReduceOp::BXOR:
      return shm::Operator::kXor;
    default:
      TORCH_CHECK(false, "shm: this ReduceOp is supported by NCCL only");
  }
}

at::Tensor real_numbers(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (!tensor.is_complex()) return tensor;
  TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
              "shm: complex numbers can only be summed or averaged");
  return at::view_as_real(tensor.detach());
}

void check_dense(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.is_cpu(), "shm: ", operation,
              ": expected a dense CPU tensor, got one of layout ", tensor.layout(), " on ", tensor.device());
}

at::Tensor only(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK(tensors.size() == 1, "shm: ", operation, ": expected a list of one tensor, got ", tensors.size());
  check_dense(tensors[0], operation);
  return tensors[0];
}

void check_list(const std::vector<at::Tensor>& tensors, size_t count, size_t bytes, const char* operation) {
  TORCH_CHECK(tensors.size() == count, "shm: ", operation, ": expected a tensor for each of ", count, " ranks, got ",
              tensors.size());
  for (const at::Tensor& tensor : tensors) {
    check_dense(tensor, operation);
    TORCH_CHECK(tensor.nbytes() == bytes, "shm: ", operation, ": expected tensors of ", bytes,
                " bytes for all ranks, got one of ", tensor.nbytes());
  }
}

at::Tensor ContiguousCopies::readable(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.is_contiguous() ? tensor : tensor.detach().contiguous();
}

at::Tensor ContiguousCopies::writable(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  copies_.emplace_back(tensor, readable(tensor));
  return copies_.back().second;
}

void ContiguousCopies::copy_back() const {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, copy] : copies_) tensor.detach().copy_(copy);
}

std::vector<at::Tensor> rows_of(const at::Tensor& whole, int64_t ranks) {
  std::vector<at::Tensor> rows;
  const int64_t each = whole.numel() / ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) rows.push_back(whole.view({-1}).narrow(0, rank * each, each));
  return rows;
}

std::vector<shm::Piece> pieces_of(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks) {
  TORCH_CHECK(
      splits.empty() ? tensor.dim() > 0 && tensor.size(0) % ranks == 0 : static_cast<int>(splits.size()) == ranks,
      "shm: alltoall: expected a row count divisible by ", ranks, " or a count for each rank");
  const size_t row = tensor.size(0) == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(tensor.size(0));
  std::vector<shm::Piece> pieces;
  std::byte* at = bytes_of(tensor);
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t rows = splits.empty() ? tensor.size(0) / ranks : splits[static_cast<size_t>(rank)];
    TORCH_CHECK(rows >= 0, "shm: alltoall: expected counts of at least 0, got ", rows, " for rank ", rank);
    pieces.push_back({at, static_cast<size_t>(rows) * row});
    at += pieces.back().bytes;
  }
  TORCH_CHECK(at == bytes_of(tensor) + tensor.nbytes(), "shm: alltoall: the counts do not add up to the rows");
  return pieces;
}

void check_root(int64_t root, int ranks, const char* operation) {
  TORCH_CHECK(root >= 0 && root < ranks, "shm: ", operation, ": expected a root from 0 to ", ranks - 1, ", got ", root);
}

void note_written(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& output : outputs) {
    if (!output.is_inference()) output.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace ddp::detail
