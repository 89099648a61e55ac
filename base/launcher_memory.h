// Memory that a launcher shares with a rank: by a descriptor, whose number is in a variable.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp::detail {

/// The variable's value if it is a whole number above 0.
std::optional<int> number_in(const char* variable) noexcept;

/// Maps at least `bytes` of memory that no other process can shorten, from the descriptor that the variable names.
/// Returns null if the descriptor no longer refers to that memory.
void* map_launcher_memory(const char* variable, std::size_t bytes) noexcept;
void unmap_launcher_memory(void* memory, std::size_t bytes) noexcept;
/// Programs that this process starts by exec do not inherit the descriptor.
void keep_from_programs(const char* variable) noexcept;
/// Nobody's, or of a process that has ended.
bool owner_has_ended(std::uint64_t owner) noexcept;
std::uint64_t own_process() noexcept;

/// The launcher's memory, where it has the greeting in it and no other process writes it; else null. `take_over` clears
/// what a process before this one has left, if there was one.
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
      keep_from_programs(variable);
      return memory;
    }
  }
  unmap_launcher_memory(mapped, sizeof(Memory));
  return nullptr;
}

}  // namespace ddp::detail
