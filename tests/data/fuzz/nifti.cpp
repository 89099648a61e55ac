// NIfTI files. The first byte chooses whether the rest is to be compressed, and whether a series is read.
#include <ddprun/data/file_formats.h>

#include "tests/data/formats.h"
#include "tests/data/fuzz/reader.h"
#include "tests/data/gzip.h"
#include "tests/fuzz/memory_file.h"

std::vector<std::string> fuzz::seeds() {
  using ddp::test::NiftiFile;
  const NiftiFile cube{.dimensions = {3, 2, 3, 4}, .slope = 0.5F, .intercept = -1};
  const NiftiFile plain{.dimensions = {4, 3, 2, 2, 1}};
  const std::string floats = cube.bytes<float>(16, std::vector<float>(24, 1.5F));
  return {chosen('0', floats),
          chosen('1', floats),
          chosen('0', ddp::test::gzip(floats)),
          chosen('0', cube.bytes<float>(16, std::vector<float>(24, 2.5F), /*swap=*/true)),
          chosen('0', cube.bytes<double>(64, std::vector<double>(24, 1e300))),
          chosen('0', plain.bytes<int16_t>(4, std::vector<int16_t>(12, -7))),
          chosen('0', plain.bytes<uint8_t>(2, std::vector<uint8_t>(12, 200))),
          chosen('0', plain.bytes<int64_t>(1024, std::vector<int64_t>(12, -1))),
          chosen('2', plain.second_bytes<int16_t>(4, std::vector<int16_t>(12, -7))),
          chosen('2', cube.second_bytes<float>(16, std::vector<float>(24, 2.5F), /*swap=*/true)),
          chosen('0', plain.bytes<uint32_t>(768, std::vector<uint32_t>(12, 5)))};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t kind = input.byte();
  const bool is_compressed = kind % 2 == 1;  // '0' is 48
  const bool is_series = kind % 4 >= 2;
  const std::string content(input.rest());
  const MemoryFile file(is_compressed ? ddp::test::gzip(content) : content);
  return may_refuse(file.path(), [&] {
    const ddp::NiftiVolume volume = ddp::read_nifti(file.path(), {.series = is_series});
    require(volume.depth > 0 && volume.height > 0 && volume.width > 0 && (is_series || volume.volumes == 1),
            "a volume has a size");
    require(static_cast<int64_t>(volume.values.size()) == volume.volumes * volume.depth * volume.height * volume.width,
            "the values are as many as the size says");
  });
}
