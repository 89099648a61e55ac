// A file whose large pieces of zeros are holes: gigabytes that take no room on the disk.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::test {

class SparseFile : public storage::ByteSink {
 public:
  explicit SparseFile(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600)) {
    if (file_ < 0) throw std::runtime_error("cannot create " + path.string());
  }
  ~SparseFile() { ::close(file_); }
  SparseFile(const SparseFile&) = delete;
  SparseFile& operator=(const SparseFile&) = delete;

  void write(const void* data, size_t size) override {
    constexpr size_t kHole = size_t{64} << 10;
    const auto* bytes = static_cast<const char*>(data);
    const bool is_hole = size >= kHole && bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
    const auto end = position_ + static_cast<off_t>(size);
    const bool done =
        is_hole ? ::ftruncate(file_, end) == 0 : ::pwrite(file_, data, size, position_) == static_cast<ssize_t>(size);
    if (!done) throw std::runtime_error("cannot write a sparse file");
    position_ = end;
  }

  /// Changes one byte of what was written, and gives it back the other way round.
  void flip(off_t position, char mask) {
    char byte = 0;
    if (::pread(file_, &byte, 1, position) != 1) throw std::runtime_error("cannot read a sparse file");
    byte = static_cast<char>(byte ^ mask);
    if (::pwrite(file_, &byte, 1, position) != 1) throw std::runtime_error("cannot write a sparse file");
  }

  off_t size() const { return position_; }

 private:
  int file_;
  off_t position_ = 0;
};

}  // namespace ddp::test
