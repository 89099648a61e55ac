// Gradient accumulation: which backward passes belong to one optimizer step. Standard library only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp {

/// One backward pass, as a part of the optimizer step that it belongs to.
struct UpdatePart {
  bool is_first = true;  ///< gradients must be zeroed before it
  bool is_last = true;   ///< the optimizer steps after it; other passes need no communication between ranks
  int64_t passes = 1;    ///< number of passes of the step, by which its losses are divided
};

/// Pass `pass` of `passes`, 0 … passes-1, when `accumulate` of them make an optimizer step; the last step has the
/// remaining passes. `accumulate` is at least 1.
///
///     const auto part = ddp::update_part(pass++, passes, accumulate);
///     if (part.is_first) optimizer.zero_grad();
///     std::optional<ddp::NoSyncGuard> local_only;
///     if (!part.is_last) local_only.emplace(model->no_sync());
///     (loss / part.passes).backward();
///     if (part.is_last) optimizer.step();
constexpr UpdatePart update_part(int64_t pass, int64_t passes, int64_t accumulate) {
  const int64_t begin = pass - pass % accumulate;
  const int64_t end = std::min(begin + accumulate, passes);
  return {.is_first = pass == begin, .is_last = pass + 1 == end, .passes = end - begin};
}

}  // namespace ddp
