// Copies between the tensors of a unit and the flat buffers that its collectives send. All take and leave contiguous
// tensors; those of equal dtypes on the CPU are copied as bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fsdp/block_cache.h"

namespace ddp::fsdp {

/// One rank's part of an all-gather: each of `shards`, contiguous, at the beginning of its `chunk_numels[i]` elements;
/// the rest of these is zero. The result has dtype `dtype`; kByte with other tensors' dtypes means their bytes, and
/// then `dtypes[i]` is what shards[i] is cast to before. It is on `device`; shards in page-locked memory are copied
/// there by the current stream, for which the host does not wait.
at::Tensor pack_shards(const std::vector<at::Tensor>& shards, const std::vector<int64_t>& chunk_numels,
                       const std::vector<at::ScalarType>& dtypes, at::ScalarType dtype, c10::Device device,
                       BlockCache& cache);

/// Copies an all-gather's result of shape (ranks, n) into `rows[i]`, each of shape (ranks, chunk_numels[i]), in the
/// order of pack_shards().
void unpack_gathered(const at::Tensor& gathered, const std::vector<at::Tensor>& rows);

/// The input of a reduce-scatter of `gradients`: for each of `ranks` ranks and each gradient that rank's chunk of rows,
/// filled up with zeros to the size of the first. Shape (ranks * n), of dtype `dtype`.
at::Tensor pack_gradients(const std::vector<at::Tensor>& gradients, int ranks, at::ScalarType dtype, BlockCache& cache);

}  // namespace ddp::fsdp
