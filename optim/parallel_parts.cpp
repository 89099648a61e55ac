#include "optim/parallel_parts.h"

#include <ATen/Parallel.h>

namespace ddp::optim {

void run_in_parallel_parts(int64_t size, const std::function<void(int64_t, int64_t)>& run) {
  constexpr int64_t kGrain = 32768;  // at::internal::GRAIN_SIZE
  at::parallel_for(0, size, kGrain, [&](int64_t begin, int64_t end) { run(begin, end); });
}

}  // namespace ddp::optim
