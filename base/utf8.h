// Where characters of UTF-8 end. Standard library only; safe in a signal handler.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddp::detail {

/// Bytes of the valid character at the front of `text`; 0 when there is none.
std::size_t utf8_length(std::string_view text) noexcept;

}  // namespace ddp::detail
