// What torch.save wrote before PyTorch 1.6, and writes with _use_new_zipfile_serialization=False: pickles one after the
// other, then the storages. It has no checksums. No LibTorch.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Whether `file` begins as such a file does.
bool looks_like_legacy(std::string_view file);

struct LegacyFile {
  std::unique_ptr<Pickle> pickle{};
  std::map<std::string, std::string_view> storages{};  ///< bytes of `file` by the storage's key
};

/// Throws FormatError unless pickles and storages make up exactly the file, and each storage has the size that the
/// pickle says.
LegacyFile read_legacy(std::string_view file);

/// Whether `file` is a tar archive, as torch.save wrote before PyTorch 0.1.10.
bool looks_like_tar(std::string_view file);

/// Throws FormatError for such a file, which torch.load(weights_only=True) refuses too.
void refuse_tar(std::string_view file);

}  // namespace ddp::pt
