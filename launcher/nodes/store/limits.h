// What this machine and this process's limits leave to the store.
#pragma once

#include <cstddef>

namespace launcher::store {

// Open files (ulimit -n).
int descriptor_limit();
// Bytes that it may hold in all: a quarter of the machine's memory, half of the address space, at most 1 GiB.
std::size_t memory_limit();

}  // namespace launcher::store
