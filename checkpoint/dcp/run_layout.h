// Which entry of a DCP folder is the model's, which an optimizer's, and which something else. No LibTorch and no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dcp/metadata.h"

namespace ddp::dcp {

enum class Role : uint8_t {
  kModel,
  kState,  ///< an optimizer's state of a parameter
  kGroup,  ///< an option of an optimizer's group, or its parameters
  kOther,
};

/// What one entry of a folder is.
struct Place {
  Role role = Role::kOther;
  std::string optimizer{};    ///< its name; the main one's is empty
  bool is_flattened = false;  ///< one key has parameter and field: "state.fc.weight.exp_avg"
  /// Where the entry's own path begins: the name in the model, the parameter or the number of the group of a nested
  /// optimizer, the key beginning with "state." or "param_groups." of a flattened one, else what the folder has.
  size_t begin = 0;
};

inline constexpr std::string_view kFlatState = "state.";
inline constexpr std::string_view kFlatGroup = "param_groups.";

/// One place for each entry, found by the usual keys; below a common one where they are not at the root.
std::vector<Place> find_places(const FolderMetadata& metadata);

}  // namespace ddp::dcp
