// Divides a loop over elements among LibTorch's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace ddp::optim {

/// Calls `run(begin, end)` for parts of [0, size) that are as many and as large as those into which ATen's own
/// elementwise loops divide it. `run` is called from several threads.
void run_in_parallel_parts(int64_t size, const std::function<void(int64_t, int64_t)>& run);

}  // namespace ddp::optim
