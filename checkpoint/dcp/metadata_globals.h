// The names that a .metadata may ask for, as values. No LibTorch.
#pragma once

#include "checkpoint/pt/unpickler.h"

namespace ddp::dcp {

/// Objects of DCP's classes become pt::Kind::kObject with these names and the state that the pickle gives them; a
/// torch.Size becomes its tuple, a dtype stays a global ("torch.float32"), paths, layouts and memory formats become
/// other values.
inline constexpr const char* kMetadataClass = "Metadata";
inline constexpr const char* kTensorClass = "Tensor";
inline constexpr const char* kPropertiesClass = "Properties";
inline constexpr const char* kChunkClass = "Chunk";
inline constexpr const char* kBytesClass = "Bytes";
inline constexpr const char* kIndexClass = "Index";
inline constexpr const char* kStorageClass = "Storage";
inline constexpr const char* kInfoClass = "Info";

/// Refuses every other name with a pt::FormatError.
class MetadataGlobals final : public pt::Globals {
 public:
  void check(std::string_view name) const override;
  pt::Value call(pt::Pickle& pickle, const std::string& function, const pt::Value& arguments) const override;
  pt::Value make(pt::Pickle& pickle, const std::string& type, const pt::Value& arguments) const override;
};

}  // namespace ddp::dcp
