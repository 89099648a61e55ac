// PBM, PGM and PPM files, plain and raw.
#include "tests/data/fuzz/picture.h"
#include "tests/data/picture_files.h"

std::vector<std::string> fuzz::seeds() {
  const ddp::Image picture = ddp::test::picture(5, 7);
  return {ddp::test::ppm(picture, true),
          ddp::test::ppm(picture, false),
          "P1\n# bits\n9 2\n 0 1 011101 0\n111000111",
          std::string("P4 9 2\n\x5A\x80\0\xFF", 11),
          "P2\n3 2\n100\n0 1 2\n50 99 # half\n 100",
          "P3 1 2 1000 0 1 999\n1000 7 3\n",
          std::string("P5\n3 2\n65535\n\0\1\0\2\1\0\2\0\xFF\xFF\7\7", 25),
          "P6\n1 2\n15\n\1\2\3\4\5\6"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  return read_picture(bytes);
}
