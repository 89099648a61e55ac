// CUDA devices that are host memory, for programs in which libtorch_cuda is not loaded: operators run at once on the
// CPU, but streams, events and the allocator keep books as on a GPU. What a GPU would do wrong now and then, use of
// memory without waiting for the stream that wrote it or freeing what another stream still uses, is found every time.
#pragma once

#include <c10/core/Stream.h>

#include <string>
#include <vector>

namespace ddp::test {

/// Makes CUDA devices 0 to 2 known to LibTorch, once per process, for good; before anything asks about CUDA. Streams
/// are per thread, as with CUDA.
void use_fake_cuda();

/// Another stream of device `index` than those before.
c10::Stream new_stream(int index);

/// The faults since the last call, in words.
std::vector<std::string> stream_faults();

/// The host waits for all streams, as cudaDeviceSynchronize does: what comes later is ordered after what was before.
void wait_for_fake_cuda();

}  // namespace ddp::test
