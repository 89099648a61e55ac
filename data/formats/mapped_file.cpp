#include "data/formats/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "data/formats/open_file.h"

namespace ddp {

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const OpenFile file(path_);
  size_ = static_cast<size_t>(file.size());
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (memory == MAP_FAILED) {
    throw DataError(path_, "cannot be mapped: " + std::generic_category().message(errno));
  }
  memory_ = std::shared_ptr<void>(memory, [size = size_](void* mapped) { ::munmap(mapped, size); });
}

}  // namespace ddp
