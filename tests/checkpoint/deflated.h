// Bytes as zlib packs them, without a header.
#pragma once

#include <zlib.h>

#include <string>

#include "tests/support/catch.h"

namespace ddp::test {

inline std::string deflated(const std::string& text, int level = 9) {
  z_stream stream{};
  REQUIRE(::deflateInit2(&stream, level, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(::deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

}  // namespace ddp::test
