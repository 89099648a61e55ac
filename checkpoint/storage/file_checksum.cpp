#include "checkpoint/storage/file_checksum.h"

#include <algorithm>
#include <future>
#include <thread>
#include <vector>

#include "base/crc32c.h"

namespace ddp::storage {
namespace {

// Small enough that the disk reads ahead while a piece's checksum is computed.
constexpr uint64_t kPiece = uint64_t{256} << 10;
constexpr uint64_t kMinPart = uint64_t{32} << 20;
constexpr uint64_t kMaxThreads = 4;

uint32_t checksum_of_part(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& path,
                          uint64_t begin, uint64_t end) {
  std::vector<char> piece(static_cast<size_t>(std::min(kPiece, end - begin)));
  uint32_t checksum = 0;
  for (uint64_t position = begin; position < end; position += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, end - position));
    file_system.read(file, piece.data(), size, position, path);
    checksum = crc32c(piece.data(), size, checksum);
  }
  return checksum;
}

}  // namespace

uint32_t file_checksum(FileSystem& file_system, const std::filesystem::path& path, uint64_t size) {
  return file_checksum(file_system, file_system.open(path), path, size);
}

uint32_t file_checksum(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& path,
                       uint64_t size) {
  const uint64_t threads = std::clamp<uint64_t>(std::thread::hardware_concurrency(), 2, kMaxThreads);
  const uint64_t parts = std::clamp<uint64_t>(size / kMinPart, 1, threads);
  const uint64_t part = size / parts;
  std::vector<std::future<uint32_t>> others;
  // Deferred where the process may have no more threads: the file is not damaged then.
  constexpr auto kLaunch = std::launch::async | std::launch::deferred;
  for (uint64_t i = 1; i < parts; ++i) {
    const uint64_t end = i + 1 == parts ? size : (i + 1) * part;
    others.push_back(std::async(kLaunch, [&file_system, &file, &path, begin = i * part, end] {
      return checksum_of_part(file_system, file, path, begin, end);
    }));
  }
  uint32_t checksum = checksum_of_part(file_system, file, path, 0, parts == 1 ? size : part);
  for (uint64_t i = 1; i < parts; ++i) {
    const uint64_t end = i + 1 == parts ? size : (i + 1) * part;
    checksum = crc32c_combine(checksum, others[i - 1].get(), end - i * part);
  }
  return checksum;
}

}  // namespace ddp::storage
