// Recognises files that do not hold weights but were given as such. No LibTorch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ddp {

/// What the `bytes` of a file are that neither a safetensors nor a .pt reader takes, and what to do: "it is a Git LFS
/// pointer …". Empty when that is not known. Looks at the beginning alone.
std::string describe_unsupported_file(std::string_view bytes, const std::filesystem::path& path);

/// The same for `folder`, by what is in it: torch.distributed.checkpoint's. Empty when that is not known.
std::string describe_unsupported_folder(const std::filesystem::path& folder);

/// describe_unsupported_file() or, where that knows nothing, `reason`.
std::string unsupported_file_or(std::string_view bytes, const std::filesystem::path& path, std::string reason);

/// Throws std::runtime_error: what the file is instead of a safetensors or .pt file or, where that is not known,
/// `reason`. A file whose name does not end in .safetensors may have been meant as either.
[[noreturn]] void refuse_tensor_file(std::string_view bytes, const std::filesystem::path& path, std::string reason);

}  // namespace ddp
