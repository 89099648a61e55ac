// Page-locked host memory, kept and given out again when the copies from and to it have ended.
#pragma once

#include <c10/core/Stream.h>

namespace at {
struct HostAllocator;
}

namespace ddp::test::device {

at::HostAllocator& host_memory();
bool is_page_locked(const void* address);

}  // namespace ddp::test::device
