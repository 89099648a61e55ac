#include "base/launcher_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace ddp::detail {

std::optional<int> number_in(const char* variable) noexcept {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end && value > 0 ? std::optional(value) : std::nullopt;
}

void* map_launcher_memory(const char* variable, std::size_t bytes) noexcept {
  const auto fd = number_in(variable);
  if (!fd) return nullptr;
  struct stat status {};
  const int seals = ::fcntl(*fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(*fd, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < bytes) {
    return nullptr;
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

void unmap_launcher_memory(void* memory, std::size_t bytes) noexcept {
  ::munmap(memory, bytes);
}

void set_close_on_exec(const char* variable) noexcept {
  if (const auto fd = number_in(variable)) ::fcntl(*fd, F_SETFD, FD_CLOEXEC);
}

bool owner_has_ended(std::uint64_t owner) noexcept {
  return owner == 0 || ::kill(static_cast<pid_t>(owner), 0) != 0;
}

std::uint64_t own_process() noexcept {
  return static_cast<std::uint64_t>(::getpid());
}

}  // namespace ddp::detail
