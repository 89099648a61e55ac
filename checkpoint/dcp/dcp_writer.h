// Writes folders that torch.distributed.checkpoint.load() of PyTorch 2.11 to 2.15 reads. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/dcp/path.h"
#include "checkpoint/shards/box.h"
#include "checkpoint/storage/byte_sink.h"
#include "checkpoint/storage/durable_file.h"

namespace ddp::dcp {

struct DcpTensor {
  Path path{};
  std::string dtype{};  ///< as in Python, without "torch."
  std::vector<int64_t> shape{};
};

/// Where an item was written.
struct DcpItem {
  std::string file{};  ///< its name in the folder
  uint64_t begin = 0;
  uint64_t size = 0;
};

/// What was written of one value or one chunk of a tensor, for DcpIndex.
struct DcpRecord {
  Path path{};
  bool is_tensor = false;
  std::string dtype{};           ///< of a tensor
  std::vector<int64_t> shape{};  ///< … of the whole
  shards::Box box{};             ///< … of the chunk
  DcpItem item{};
};

/// Writes the items of one rank, `__<rank>_<number>.distcp`, one after the other. Throws std::system_error, and
/// std::invalid_argument for dtypes that PyTorch has not and JSON that is damaged.
class DcpFile {
 public:
  /// Creates the file in `folder`, which exists. Without finish() an incomplete file remains.
  DcpFile(storage::FileSystem& file_system, const std::filesystem::path& folder, int64_t rank, int64_t number = 0);
  ~DcpFile();
  DcpFile(const DcpFile&) = delete;
  DcpFile& operator=(const DcpFile&) = delete;

  /// Adds the elements of `box` of the tensor, which `writer` puts into the sink in row-major order, in any pieces.
  /// Nothing is buffered. Throws std::length_error when they are not as many bytes as `box` and dtype ask for.
  void add_tensor(const DcpTensor& tensor, const shards::Box& box,
                  const std::function<void(storage::ByteSink& sink)>& writer);

  /// Adds the values in `json` (JSON as trainer.json has it: {"__float__": "inf"} is a number) below `path` as Python
  /// flattens them: each item of an object, and each element of a list that holds objects, is an item of its own. Lists
  /// under "betas" become tuples. An empty object leaves no trace, as in Python.
  void add_value(const Path& path, const std::string& json);

  /// Makes the file durable, closes it, and returns its records.
  std::vector<DcpRecord> finish();

  /// The checksum and size of the whole file, after finish().
  const storage::FileRecord& file_record() const;

 private:
  class Content;
  std::unique_ptr<Content> content_;
};

/// Writes the folder's `.metadata`, the last of its files, durable on return, from the records of all its .distcp
/// files. The chunks of each tensor are listed in the order of `records`; of several chunks without elements at one
/// place the first is kept, as in Python. Throws std::invalid_argument when a key has two values, or two tensors of
/// other dtypes or shapes; std::system_error. The caller makes the folder's entries durable and renames it.
storage::FileRecord write_dcp_metadata(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                       const std::vector<DcpRecord>& records);

/// A tensor's chunk, or a value, and the rank whose file shall hold it.
struct DcpPlace {
  int64_t rank = 0;
  shards::Box box{};  ///< of a tensor
};

struct DcpContents {
  std::vector<std::pair<DcpTensor, std::vector<DcpPlace>>> tensors{};
  /// JSON by path and rank, see DcpFile::add_value().
  std::vector<std::pair<Path, std::string>> values{};
};

/// Writes a whole folder from one process: the values in rank 0's file, then each chunk in the file of its rank (one
/// open at a time), then `.metadata`. `writer` puts the elements of the chunk `place` of the tensor `tensor` (numbers
/// in `contents`) into the sink. `folder` exists and is empty. Returns size and checksum of each file by name. Throws
/// as DcpFile and write_dcp_metadata() do.
std::map<std::string, storage::FileRecord> write_dcp_folder(
    storage::FileSystem& file_system, const std::filesystem::path& folder, const DcpContents& contents,
    const std::function<void(size_t tensor, size_t place, storage::ByteSink& sink)>& writer);

}  // namespace ddp::dcp
