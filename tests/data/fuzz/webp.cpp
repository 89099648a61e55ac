// WebP files: with and without loss, with opacity, several frames.
#include "tests/data/fuzz/picture.h"
#include "tests/data/picture_files.h"

std::vector<std::string> fuzz::seeds() {
  return {ddp::test::lossless_webp(), ddp::test::webp_with_opacity(), ddp::test::lossy_webp(),
          ddp::test::animated_webp()};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  return read_picture(bytes);
}
