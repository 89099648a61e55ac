// Collects what a writer of a file format writes.
#pragma once

#include <string>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::test {

class TextSink : public storage::ByteSink {
 public:
  void write(const void* data, size_t size) override { text.append(static_cast<const char*>(data), size); }
  std::string text{};
};

}  // namespace ddp::test
