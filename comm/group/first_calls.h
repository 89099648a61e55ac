// Internal: the first calls of the numeric library that LibTorch uses on the CPU.
#pragma once

namespace ddp::detail {

/// Calls each vector function of oneMKL that LibTorch's operators use once in float32 and once in float64. oneMKL
/// before 2025 chooses a kernel in the first call of a function: a second thread that calls it at the same time may get
/// results that are wrong by 1e-4 (github.com/pytorch/pytorch/issues/188792). Both LibTorch's own worker threads and a
/// program's threads can do so. Takes about 3 ms; does nothing after its first call in a process.
void make_first_calls();

}  // namespace ddp::detail
