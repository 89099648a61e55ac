#include "fsdp/flat_buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <ddprun/detail/comm/device_copy.h>

#include "fsdp/core/shard_layout.h"

namespace ddp::fsdp {
namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

// Copies `from` into the elements of the flat `to` from `offset` on, and zeros up to `padded` elements.
void put(const at::Tensor& to, int64_t offset, const at::Tensor& from, int64_t padded) {
  const int64_t numel = from.numel();
  if (to.is_cpu() && from.is_cpu() && to.scalar_type() == from.scalar_type() && from.is_contiguous()) {
    const auto size = static_cast<size_t>(to.element_size());
    std::byte* place = bytes_of(to) + static_cast<size_t>(offset) * size;
    const size_t bytes = static_cast<size_t>(numel) * size;
    if (numel > 0) std::memcpy(place, from.const_data_ptr(), bytes);
    if (padded > numel) std::memset(place + bytes, 0, static_cast<size_t>(padded - numel) * size);
    return;
  }
  if (numel > 0) to.narrow(0, offset, numel).view(from.sizes()).copy_(from);
  if (padded > numel) to.narrow(0, offset + numel, padded - numel).zero_();
}

}  // namespace

at::Tensor pack_shards(const std::vector<at::Tensor>& shards, const std::vector<int64_t>& chunk_numels,
                       const std::vector<at::ScalarType>& dtypes, at::ScalarType dtype, c10::Device device,
                       BlockCache& cache) {
  const bool as_bytes = std::ranges::any_of(dtypes, [&](at::ScalarType one) { return one != dtype; });
  int64_t numel = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    numel += chunk_numels[i] * (as_bytes ? static_cast<int64_t>(c10::elementSize(dtypes[i])) : 1);
  }
  at::Tensor flat = flat_buffer(numel, dtype, device, cache);
  int64_t offset = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    // The shard is moved to the device first and then cast, as in PyTorch. A cast on the host would delay the device.
    const at::Tensor shard = to_device(shards[i].detach(), device);
    if (!as_bytes) {
      put(flat, offset, shard, chunk_numels[i]);
      offset += chunk_numels[i];
      continue;
    }
    const auto size = static_cast<int64_t>(c10::elementSize(dtypes[i]));
    const at::Tensor one = shard.to(dtypes[i]).contiguous().view({-1});
    put(flat, offset, one.numel() == 0 ? at::empty({0}, flat.options()) : one.view(at::kByte), chunk_numels[i] * size);
    offset += chunk_numels[i] * size;
  }
  return flat;
}

void unpack_gathered(const at::Tensor& gathered, const std::vector<at::Tensor>& rows) {
  const int64_t ranks = gathered.size(0);
  const auto row_bytes = static_cast<size_t>(gathered.size(1)) * gathered.element_size();
  const bool as_bytes =
      std::ranges::any_of(rows, [&](const at::Tensor& one) { return one.scalar_type() != gathered.scalar_type(); });
  size_t offset = 0;
  for (const at::Tensor& one : rows) {
    if (one.size(1) == 0) continue;
    const size_t bytes = static_cast<size_t>(one.size(1)) * one.element_size();
    if (gathered.is_cpu()) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto at = static_cast<size_t>(rank);
        std::memcpy(bytes_of(one) + at * bytes, bytes_of(gathered) + at * row_bytes + offset, bytes);
      }
    } else {
      const auto unit = static_cast<int64_t>(as_bytes ? 1 : one.element_size());
      const at::Tensor to = as_bytes ? one.view(at::kByte) : one;
      to.copy_(gathered.narrow(1, static_cast<int64_t>(offset) / unit, to.size(1)));
    }
    offset += bytes;
  }
}

at::Tensor pack_gradients(const std::vector<at::Tensor>& gradients, int ranks, at::ScalarType dtype,
                          BlockCache& cache) {
  std::vector<ShardLayout> layouts;
  int64_t numel = 0;
  for (const at::Tensor& gradient : gradients) {
    const int64_t rows = gradient.size(0);
    numel += layouts.emplace_back(rows, rows == 0 ? 0 : gradient.numel() / rows, ranks).padded_numel();
  }
  at::Tensor flat = flat_buffer(numel, dtype, gradients.front().device(), cache);
  int64_t offset = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      const ShardLayout& layout = layouts[i];
      put(flat, offset, gradients[i].narrow(0, layout.first_row(rank), layout.rows_of(rank)), layout.chunk_numel());
      offset += layout.chunk_numel();
    }
  }
  return flat;
}

}  // namespace ddp::fsdp
