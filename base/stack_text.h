// Formats the stack of the calling thread as text.
#pragma once

#include <array>
#include <cstddef>

#include "base/bounded_text.h"

namespace ddp::detail {

struct Stack {
  std::array<void*, 48> frames{};
  int count = 0;
};

// Appends one line for each frame after the first `skipped` frames: "#0 function+0x12 (file+0x345)". Allocates memory
// only if `demangled` is true.
void append_stack(BoundedText& out, const Stack& stack, int skipped, bool demangled);

}  // namespace ddp::detail
