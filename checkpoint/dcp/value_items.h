// The values of a DCP folder that are not tensors: each an archive of torch.save() of its own, many of them small. No
// LibTorch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/dcp/metadata.h"
#include "checkpoint/pt/value.h"

namespace ddp::dcp {

/// Largest archive of a value that is read, in bytes.
inline constexpr uint64_t kMaxValueBytes = uint64_t{64} << 20;

/// Reads the values of the entries with these numbers and calls `use` for each, in the order of their places; the value
/// is gone afterwards. Neighbours are read together. All lie in their files, and none is larger than kMaxValueBytes.
/// Throws std::runtime_error naming file and key for one that is damaged, and std::system_error.
void for_each_value(storage::FileSystem& file_system, const std::filesystem::path& folder,
                    const FolderMetadata& metadata, std::vector<size_t> numbers,
                    const std::function<void(size_t number, const pt::Value& value)>& use);

/// "__3_0.distcp of rank 3"; a name of another form alone.
std::string describe_file(const std::string& name);

}  // namespace ddp::dcp
