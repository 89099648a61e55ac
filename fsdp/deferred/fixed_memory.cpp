#include "fsdp/deferred/fixed_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace ddp::fsdp {
namespace {

// A page before the memory holds its size, since a DataPtr's deleter receives only the address.
struct Header {
  size_t bytes;  // with this page
};

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::byte* begin_of(void* memory) {
  return static_cast<std::byte*>(memory) - page_bytes();
}

size_t bytes_of(void* memory) {
  return reinterpret_cast<const Header*>(begin_of(memory))->bytes - page_bytes();
}

void unmap(void* memory) {
  std::byte* const begin = begin_of(memory);
  munmap(begin, reinterpret_cast<const Header*>(begin)->bytes);
}

bool has_limited_address_space() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Replaces the pages with fresh ones.
bool map_again(void* memory, int protection) {
  return mmap(memory, bytes_of(memory), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) !=
         MAP_FAILED;
}

}  // namespace

at::DataPtr allocate_fixed_memory(size_t bytes) {
  if (has_limited_address_space() || bytes > SIZE_MAX / 2) return {};
  const size_t page = page_bytes();
  const size_t whole = page + (std::max<size_t>(bytes, 1) + page - 1) / page * page;
  void* const begin = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return {};
  new (begin) Header{.bytes = whole};
  void* const memory = static_cast<std::byte*>(begin) + page;
  return {memory, memory, &unmap, c10::Device(c10::kCPU)};
}

bool is_fixed_memory(const at::DataPtr& memory) {
  return memory.get() != nullptr && memory.get_deleter() == &unmap;
}

bool free_pages(const at::DataPtr& memory) {
  return map_again(memory.get(), PROT_NONE);
}

void restore_pages(const at::DataPtr& memory) {
  if (!map_again(memory.get(), PROT_READ | PROT_WRITE)) throw std::bad_alloc();
}

}  // namespace ddp::fsdp
