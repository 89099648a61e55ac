// Random numbers of a device: a seed and the number of kernels that have drawn, as Philox's on a GPU, so that a
// kernel's numbers depend on the order of launches and not on when it runs.
#pragma once

#include <ATen/core/Generator.h>

namespace ddp::test::device {

/// Lives as long as the process.
const at::Generator& default_generator(int device);
at::Generator new_generator(int device);

/// The CPU generator for the next kernel that draws from one of the above.
at::Generator for_kernel(const at::Generator& generator);

}  // namespace ddp::test::device
