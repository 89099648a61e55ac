// BMP files of every depth, and run lengths.
#include "tests/data/fuzz/picture.h"
#include "tests/data/picture_files.h"

std::vector<std::string> fuzz::seeds() {
  using ddp::test::BmpFile;
  const auto noise = [](size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(37 * i));
    return bytes;
  };
  const std::string masks("\0\xF8\0\0\xE0\7\0\0\x1F\0\0\0", 12);
  const std::string run_lengths("\5\7\0\3\1\2\3\0\5\x9\0\0\xD\4\0\2\3\1\4\5\0\0\0\1", 24);
  return {ddp::test::bmp(ddp::test::picture(5, 7)),
          ddp::test::bmp(ddp::test::picture(5, 7), /*is_top_down=*/true),
          BmpFile{.bits = 1, .palette = noise(8)}.bytes(5, 13, noise(20)),
          BmpFile{.bits = 4, .palette = noise(64)}.bytes(5, 13, noise(40)),
          BmpFile{.bits = 8, .palette = noise(1024)}.bytes(5, 13, noise(80)),
          BmpFile{.bits = 16}.bytes(5, 13, noise(140)),
          BmpFile{.bits = 16, .compression = 3, .palette = masks}.bytes(5, 13, noise(140)),
          BmpFile{.bits = 32, .compression = 3, .palette = std::string(12, '\0')}.bytes(5, 13, noise(260)),
          BmpFile{.bits = 8, .compression = 1, .palette = noise(1024)}.bytes(4, 13, run_lengths),
          BmpFile{.bits = 4, .compression = 2, .palette = noise(64)}.bytes(4, 13, run_lengths)};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  return read_picture(bytes);
}
