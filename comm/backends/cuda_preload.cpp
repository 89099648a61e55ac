// Linked into programs that use CUDA (ddprun::cuda, and with it ddprun::ddp): loads libtorch_cuda before main, where
// there is a device. Later is too late for many: LibTorch remembers the answer to the first question about CUDA, and
// the program's first line may ask it (torch::manual_seed does).
#include "comm/core/cuda_devices.h"

// A linker option refers to this function; otherwise the linker would leave this file out of the program.
extern "C" [[gnu::constructor, gnu::visibility("default")]] void ddprun_preload_cuda();

void ddprun_preload_cuda() {
  ddp::detail::preload_cuda();
}
