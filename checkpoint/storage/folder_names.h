// Names inside a directory of checkpoints: `step-00001200` is a committed checkpoint, `….tmp-<id>` one that is being
// written or removed, `….old-<id>` one that is being replaced where names cannot be exchanged. No LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::storage {

/// "step-" and at least eight digits.
std::string folder_name(int64_t step);

/// The step of a committed checkpoint's name; nothing for any other name.
std::optional<int64_t> step_of(std::string_view name);

/// What a killed process leaves.
struct Leftover {
  enum class Kind { kTemporary, kReplaced };
  Kind kind = Kind::kTemporary;
  std::string target;  ///< the name without the suffix
};

/// Whether `name` is a leftover of a checkpoint or of the file `latest`.
std::optional<Leftover> leftover(std::string_view name);

std::string temporary_name(std::string_view target, std::string_view id);
std::string replaced_name(std::string_view target, std::string_view id);

/// 16 random hexadecimal digits.
std::string random_id();

inline constexpr const char* kLatestName = "latest";

}  // namespace ddp::storage
