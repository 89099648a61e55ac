// Reads parts of tensors out of the files that hold chunks of them: of each file the bytes that are needed, in order
// and none twice. No LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/shards/tensor_catalog.h"

namespace ddp::shards {

/// A part of a tensor that is wanted.
struct ReadRequest {
  std::string name{};                     ///< of the tensor, for messages
  const CatalogTensor* tensor = nullptr;  ///< of a catalog that check() has accepted
  Box box{};                              ///< inside of the tensor
  char* target = nullptr;                 ///< memory for the elements of `box` in row-major order
};

/// Fulfils all requests, whose tensors are in the files of `catalog`. Beside needed bytes it reads up to 1 MiB between
/// two of them, and the rest of each block that has a checksum; items of torch.save() that an archiver has packed or
/// that have strides are read whole. Its memory beside the targets is a buffer of 16 MiB, one entry per chunk, and one
/// for each gap of more than 1 MiB. `checksums` may lack files: those are not compared. Of an item of torch.save() that
/// is needed whole the archive's CRC-32 is compared. Throws storage::DamagedCheckpoint naming the file and a tensor
/// where bytes are missing or are not those that were written, and std::system_error where the system gives an error.
void read_chunks(storage::FileSystem& file_system, const TensorCatalog& catalog, const BlockChecksums& checksums,
                 const std::vector<ReadRequest>& requests);

/// How many bytes of the files read_chunks() would read, but for the rest of blocks and of items of torch.save(); for
/// tests and plans.
uint64_t bytes_to_read(const std::vector<ReadRequest>& requests);

}  // namespace ddp::shards
