#include "comm/collectives/tensor_packing.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>

namespace ddp::detail {
namespace {

// A copy as messages need it: without the gaps that reshape() keeps in a vector, and with a lazy conjugation resolved.
at::Tensor in_one_row(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().reshape({-1}).contiguous();
}

}  // namespace

void TensorPack::unpack() const {
  if (tensors.size() == 1 && flat.is_alias_of(tensors[0])) return;
  const at::NoGradGuard no_grad;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

std::vector<TensorPack> pack_by_dtype(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<TensorPack> packs;
  for (const at::Tensor& tensor : tensors) {
    auto pack = std::find_if(packs.begin(), packs.end(), [&](const TensorPack& other) {
      return other.tensors[0].scalar_type() == tensor.scalar_type() && other.tensors[0].device() == tensor.device();
    });
    if (pack == packs.end()) pack = packs.insert(packs.end(), TensorPack{});
    pack->tensors.push_back(tensor);
  }
  for (TensorPack& pack : packs) {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& tensor : pack.tensors) rows.push_back(in_one_row(tensor));
    pack.flat = rows.size() == 1 ? rows[0] : at::cat(rows);
  }
  return packs;
}

}  // namespace ddp::detail
