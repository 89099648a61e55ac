// PNG and JPEG files. The first byte chooses: the file as it is, or a PNG whose checksums are put right, which damage
// inside a chunk needs to come any further.
#include <zlib.h>

#include "tests/data/fuzz/picture.h"
#include "tests/data/picture_files.h"

namespace {

using namespace ddp;

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// A chunk is its length, four letters, content, and the checksum of letters and content.
std::string with_right_checksums(std::string png) {
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::size_t length = big_endian(png, at);
    if (length > png.size() - at - 12) break;
    const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += length + 12;
  }
  return png;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  for (const png_uint_32 format :
       std::initializer_list<png_uint_32>{PNG_FORMAT_RGB, PNG_FORMAT_RGBA, PNG_FORMAT_GRAY}) {
    const std::string png = test::png(test::picture(12, 9), format);
    for (const char kind : {'0', '1'}) all.push_back(chosen(kind, png));
    all.push_back(chosen('1', test::with_chunk(png, "gAMA", std::string("\0\1\x86\xA0", 4))));
  }
  for (const int quality : {20, 75, 100}) all.push_back(chosen('0', test::jpeg(test::smooth_picture(20, 17), quality)));
  all.push_back(chosen('0', test::jpeg(test::smooth_picture(20, 17), 75, test::progressive_scans(21, 1))));
  for (const bool is_ycck : {false, true}) {
    all.push_back(chosen('0', test::jpeg_in_inks(test::smooth_picture(20, 17), 75, is_ycck)));
  }
  return all;
}

std::string fuzz::seed_of_file(const std::string& content) {
  return chosen('0', content);
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const bool is_put_right = input.byte() % 2 == 1;  // '0' is 48
  std::string file(input.rest());
  if (is_put_right) file = with_right_checksums(std::move(file));
  return read_picture(file);
}
