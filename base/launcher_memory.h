// Memory that a launcher shares with a rank. An environment variable contains the number of its file descriptor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp::detail {

/// The value of the variable if it is a positive integer, otherwise nullopt.
std::optional<int> number_in(const char* variable) noexcept;

/// Maps at least `bytes` of memory from the descriptor that the variable contains. The memory must be sealed, so that
/// no other process can shrink it. Returns null if the descriptor no longer refers to such memory.
void* map_launcher_memory(const char* variable, std::size_t bytes) noexcept;
void unmap_launcher_memory(void* memory, std::size_t bytes) noexcept;
/// Sets the descriptor to close on exec, so that programs started by this process do not inherit it.
void set_close_on_exec(const char* variable) noexcept;
/// Returns true if there is no owner, or if the owner process has ended.
bool owner_has_ended(std::uint64_t owner) noexcept;
std::uint64_t own_process() noexcept;

/// Maps the memory of the launcher and makes this process its owner. Returns null if the greeting is missing or another
/// running process owns the memory. `take_over` must clear the data of a previous owner, if there was one.
template <typename Memory>
Memory* claim_launcher_memory(const char* variable, std::uint64_t greeting,
                              void (*take_over)(Memory&, bool was_anothers) noexcept) noexcept {
  void* mapped = map_launcher_memory(variable, sizeof(Memory));
  if (mapped == nullptr) return nullptr;
  auto* memory = static_cast<Memory*>(mapped);
  if (memory->greeting.load(std::memory_order_acquire) == greeting) {
    std::uint64_t owner = memory->process.load(std::memory_order_relaxed);
    if (owner_has_ended(owner) && memory->process.compare_exchange_strong(owner, own_process())) {
      take_over(*memory, owner != 0);
      set_close_on_exec(variable);
      return memory;
    }
  }
  unmap_launcher_memory(mapped, sizeof(Memory));
  return nullptr;
}

}  // namespace ddp::detail
