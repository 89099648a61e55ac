// Gradient accumulation: determines which backward passes belong to one optimizer step. Uses only the standard library.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp {

/// The place of one backward pass in its optimizer step.
struct UpdatePart {
  bool is_first = true;  ///< gradients must be zeroed before this pass
  bool is_last = true;   ///< the optimizer steps after this pass; after other passes, ranks need not communicate
  int64_t passes = 1;    ///< number of passes in the step, by which their losses are divided
};

/// Returns the place of pass `pass`, 0 … passes-1, if an optimizer step consists of `accumulate` passes. The last step
/// consists of the remaining passes. `accumulate` must be at least 1.
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
