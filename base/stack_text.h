// The calling thread's stack as text.
#pragma once

#include <array>
#include <cstddef>

#include "base/bounded_text.h"

namespace ddp::detail {

struct Stack {
  std::array<void*, 48> frames{};
  int count = 0;
};

// One line per frame but the first `skipped`: "#0 function+0x12 (file+0x345)". Allocates only with `demangled`.
void append_stack(BoundedText& out, const Stack& stack, int skipped, bool demangled);

}  // namespace ddp::detail
