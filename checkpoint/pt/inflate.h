// Unpacks deflated data (RFC 1951) of zip entries. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "checkpoint/pt/format_error.h"

namespace ddp::pt {

/// Gives the unpacked bytes to `sink` piece by piece. Throws FormatError when they are damaged, are not exactly `size`,
/// or do not take up all of `packed`.
void inflate(std::string_view packed, uint64_t size, const std::function<void(std::string_view piece)>& sink);

}  // namespace ddp::pt
