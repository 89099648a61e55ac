// Page-locked host memory: kept, and given out again when the copies from and to it have ended. Mapped twice, as the
// devices' memory: copies use the other addresses, and the program's are closed to it while a copy is under way that it
// has not waited for. Touching them then is a fault.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>
#include <vector>

namespace at {
struct HostAllocator;
}

namespace ddp::test::device {

at::HostAllocator& host_memory();
bool is_page_locked(const void* address);

/// A contiguous tensor in page-locked memory as copies see it.
at::Tensor for_copy(const at::Tensor& tensor);
/// What was last queued on `stream` is a copy from the tensor's memory, or to it: until the host has waited for it, the
/// program may only read it, or not even that.
void begin_copy(const at::Tensor& tensor, c10::Stream stream, bool is_written);
/// The host has waited for something: opens the memory of copies that it has waited for.
void open_copied();
/// The same for all copies, which have ended.
void open_all();

/// Whether an access of the program at `address` failed because of a copy; then that is noted and the memory open.
bool note_early_access(const void* address);

/// What was allocated after the allocation of this number, in words.
std::vector<std::string> live_pages(uint64_t number);

}  // namespace ddp::test::device
