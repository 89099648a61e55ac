// Which tensors are in bytes that are damaged, and which were in a file that is missing, for messages. What headers say
// is not verified here. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp::shards {

/// " (rank 2's part)", of a file that one of several ranks has written; else empty.
std::string owner(const std::string& file);

/// A range of bytes in the file of a part, whose files are `files` in `folder`.
struct LostBytes {
  const std::vector<std::string>& files;
  const std::string& file;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t written = 0;  ///< size of the file when it was written
};

/// "'fc.weight' and others", the tensors that have elements between begin and end, as the file's own header says. Empty
/// if no tensor has, or if the header cannot be read. Does not throw.
std::string tensors_between(storage::FileSystem& file_system, const std::filesystem::path& folder,
                            const LostBytes& bytes);

/// What the file `lost` held: "a part of 'fc.weight'" as the headers of the part's other files say, else which part of
/// a run: "tensors of the model". Does not throw.
std::string content_of_lost(storage::FileSystem& file_system, const std::filesystem::path& folder,
                            const std::vector<std::string>& files, const std::string& lost);

/// "; they hold 'fc.weight'" or "; the file holds a part of 'fc.weight'", from the two above.
std::string lost_bytes_text(storage::FileSystem& file_system, const std::filesystem::path& folder,
                            const LostBytes& bytes);

}  // namespace ddp::shards
