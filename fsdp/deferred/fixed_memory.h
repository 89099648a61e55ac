// Host memory whose pages can be freed and allocated again at the same address. The address range stays reserved, so an
// access through a pointer that was kept either reads the values or ends the process by SIGSEGV. No LibTorch operators.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace ddp::fsdp {

/// New memory of `bytes` zeros for a tensor. Empty where the system has no address range for it, and where the process
/// has a limit of its address space (`ulimit -v`), which freed pages would count for.
at::DataPtr allocate_fixed_memory(size_t bytes);

/// Whether it was made by allocate_fixed_memory().
bool is_fixed_memory(const at::DataPtr& memory);

/// Frees the pages of fixed memory; false where the system cannot keep the address.
bool free_pages(const at::DataPtr& memory);

/// Zeros where free_pages() was. Throws std::bad_alloc.
void restore_pages(const at::DataPtr& memory);

}  // namespace ddp::fsdp
