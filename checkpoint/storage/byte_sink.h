// Where a writer of a file format puts its bytes.
#pragma once

#include <cstddef>

namespace ddp::storage {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  /// Appends `size` bytes.
  virtual void write(const void* data, size_t size) = 0;
};

}  // namespace ddp::storage
