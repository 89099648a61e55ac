// Tensors in files that hold chunks of them: described first, read when it is known which rows this rank needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/module_state.h"
#include "checkpoint/shards/chunk_reader.h"

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Borrows the part.
class ChunkedTensors {
 public:
  /// `folder` and `part_name` are for messages. Reads tensors without dimensions at once; throws as read().
  ChunkedTensors(storage::FileSystem& file_system, const ChunkedPart& part, std::filesystem::path folder,
                 const std::string& part_name);

  /// All tensors of the catalog, without values but for those without dimensions: meta tensors. Throws
  /// std::runtime_error for a dtype that C++ does not have.
  const StoredTensors& described() const { return described_; }

  /// The tensor that will have the values of `value` after read(): of a meta tensor of described() a new CPU tensor of
  /// `rows` rows from `first_row` on, or of all its elements; of any other tensor itself.
  at::Tensor request(const at::Tensor& value);
  at::Tensor request_rows(const at::Tensor& value, int64_t first_row, int64_t rows);

  /// Reads all that is wanted. Throws storage::DamagedCheckpoint naming file and tensor, and std::system_error.
  void read();

 private:
  struct Described {
    at::Tensor value{};  // kept, so that no other tensor has its address
    std::string name{};
    const shards::CatalogTensor* tensor = nullptr;
  };

  at::Tensor request_box(const at::Tensor& value, shards::Box box);

  storage::FileSystem& file_system_;
  const ChunkedPart& part_;
  std::filesystem::path folder_;
  StoredTensors described_{};
  std::map<const void*, Described> by_value_{};
  std::vector<shards::ReadRequest> requests_{};
  std::vector<at::Tensor> bools_{};  // whose bytes are verified after the read
};

/// The tensors of one part of a checkpoint, with their values or, where `chunks` is set, without.
struct StoredPart {
  StoredTensors stored{};
  ChunkedTensors* chunks = nullptr;
};

/// Replaces each value by the values of its target, which may be a shard. Chunks are read by ChunkedTensors::read().
void take_values(const StoredPart& part, std::vector<Assignment>& assignments);

/// The part of the state in `part` that `optimizer`, whose parameters are tensors of `model`, needs on this rank: rows
/// of its parameters' shards, and no values of parameters whose state other ranks keep. Chunks are read at once. Throws
/// as ChunkedTensors::read().
StoredTensors optimizer_values(const StoredPart& part, const torch::optim::Optimizer& optimizer, const TensorMap& model,
                               const NameMap& rename = {});

}  // namespace ddp
