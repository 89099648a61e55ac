// gzip files for tests.
#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>

namespace ddp::test {

inline std::string gzip(const std::string& content) {
  z_stream stream{};
  constexpr int kGzipFormat = 15 + 16;
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzipFormat, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2 failed");
  }
  std::string packed(deflateBound(&stream, content.size()) + 32, '\0');
  std::string input = content;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return packed;
}

}  // namespace ddp::test
