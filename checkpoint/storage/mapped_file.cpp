#include "ddprun/detail/checkpoint/storage/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace ddp::storage {

Bytes map_file(FileSystem& file_system, const std::filesystem::path& path) {
  return map_file(file_system, file_system.open(path), path);
}

Bytes map_file(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& path) {
  const auto size = static_cast<size_t>(file_system.size(file, path));
  if (size == 0) return {};
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "cannot map " + path.string());
  }
  std::shared_ptr<void> owner(memory, [size](void* mapped) { ::munmap(mapped, size); });
  return {std::move(owner), {static_cast<const char*>(memory), size}};
}

Bytes own_bytes(std::string bytes) {
  auto owner = std::make_shared<std::string>(std::move(bytes));
  const std::string_view view = *owner;
  return {std::move(owner), view};
}

}  // namespace ddp::storage
