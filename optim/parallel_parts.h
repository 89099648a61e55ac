// Divides a loop over elements among LibTorch's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace ddp::optim {

/// Calls `run(begin, end)` for consecutive parts of [0, size). The parts are the same as those of ATen's elementwise
/// loops. `run` is called from several threads.
void run_in_parallel_parts(int64_t size, const std::function<void(int64_t, int64_t)>& run);

}  // namespace ddp::optim
