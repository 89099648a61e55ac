#include "checkpoint/pt/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace ddp::pt {
namespace {

[[noreturn]] void fail() {
  throw FormatError("a compressed entry of the zip file is damaged");
}

class Stream {
 public:
  Stream() {
    constexpr int kRawDeflate = -15;  // without zlib's own header, with the largest window
    if (::inflateInit2(&stream_, kRawDeflate) != Z_OK) throw std::bad_alloc();
  }
  ~Stream() { ::inflateEnd(&stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  z_stream* operator->() { return &stream_; }
  int step() { return ::inflate(&stream_, Z_NO_FLUSH); }

 private:
  z_stream stream_{};
};

}  // namespace

void inflate(std::string_view packed, uint64_t size, const std::function<void(std::string_view piece)>& sink) {
  constexpr size_t kPiece = size_t{64} << 10;
  Stream stream;
  std::array<char, kPiece> buffer{};
  uint64_t total = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (stream->avail_in == 0) {
      const auto next = packed.substr(0, std::numeric_limits<uInt>::max());
      stream->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next.data()));
      stream->avail_in = static_cast<uInt>(next.size());
      packed.remove_prefix(next.size());
    }
    stream->next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream->avail_out = kPiece;
    status = stream.step();
    // Z_BUF_ERROR: nothing more comes, and the end was not reached.
    if (status != Z_OK && status != Z_STREAM_END) fail();
    const auto made = kPiece - stream->avail_out;
    if (made > size - total) fail();
    total += made;
    sink({buffer.data(), made});
  }
  if (total != size || stream->avail_in != 0 || !packed.empty()) fail();
}

}  // namespace ddp::pt
