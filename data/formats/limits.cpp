#include "data/formats/limits.h"

#include <algorithm>

namespace ddp {

void check_unpacked_size(const std::filesystem::path& path, int64_t unpacked_bytes, int64_t file_bytes, int64_t times) {
  constexpr int64_t kAlways = int64_t{512} << 20;
  constexpr int64_t kMemoryPerByte = 128;
  if (unpacked_bytes <= (kAlways + kMemoryPerByte * file_bytes) / times) return;
  const std::string part = times == 1 ? "" : ", divided by " + std::to_string(times) + " for a picture like this";
  throw DataError(path, "its " + std::to_string(file_bytes) + " bytes would be decompressed to " +
                            std::to_string(unpacked_bytes) + ": expected at most 512 MiB and 128 times its size" +
                            part);
}

void check_working_memory(const std::filesystem::path& path, int64_t bytes, int64_t file_bytes,
                          const std::string& what) {
  constexpr int64_t kAlways = int64_t{56} << 20;
  constexpr int64_t kMemoryPerByte = 56;
  if (bytes <= std::max(kAlways, kMemoryPerByte * file_bytes)) return;
  throw DataError(path, what + " need " + std::to_string(bytes) +
                            " bytes of memory in addition to the picture, in a file of " + std::to_string(file_bytes) +
                            " bytes: expected at most 56 MiB or 56 times its size; store it in another way");
}

}  // namespace ddp
