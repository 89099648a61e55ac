// PNG and TIFF files whose samples are kept as they are.
#include "data/formats/raster.h"

#include "tests/data/fuzz/reader.h"
#include "tests/data/picture_files.h"
#include "tests/data/pictures.h"

std::vector<std::string> fuzz::seeds() {
  using ddp::test::TiffBytes;
  const auto noise = [](std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(37 * i));
    return bytes;
  };
  std::vector<std::string> all;
  for (const png_uint_32 format :
       std::initializer_list<png_uint_32>{PNG_FORMAT_RGB, PNG_FORMAT_RGBA, PNG_FORMAT_GRAY}) {
    all.push_back(ddp::test::png(ddp::test::picture(12, 9), format));
  }
  const auto one = [&](uint64_t bits, uint64_t kind, std::size_t bytes) {
    all.push_back(TiffBytes{.tags = {{258, {bits}}, {262, {1}}, {277, {1}}, {339, {kind}}}}.bytes(6, 8, noise(bytes)));
  };
  one(12, 1, 72);
  one(16, 2, 96);
  one(16, 3, 96);
  one(32, 3, 192);
  one(64, 3, 384);
  one(1, 1, 6);
  all.push_back(TiffBytes{.is_big_endian = true, .tags = {{258, {32}}, {262, {1}}, {277, {1}}, {339, {3}}}}.bytes(
      6, 8, noise(192)));
  all.push_back(TiffBytes{.tags = {{284, {2}}, {273, {8, 56, 104}}, {279, {48, 48, 48}}}}.bytes(6, 8, noise(144)));
  all.push_back(TiffBytes{.tags = {{322, {16}}, {323, {16}}, {324, {8}}, {325, {768}}}}.bytes(6, 8, noise(768)));
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  constexpr ddp::DecodeOptions kOptions{.most_pixels = 1 << 16};
  return may_refuse("raster", [&] {
    std::vector<uint8_t> samples;
    const auto memory = [&](const ddp::Raster& raster) {
      require(samples.empty(), "memory is asked for once");
      samples.resize(static_cast<std::size_t>(raster.bytes()));
      return samples.data();
    };
    const ddp::Raster raster = ddp::decode_raster({bytes.begin(), bytes.end()}, "raster", kOptions, memory);
    require(raster.height > 0 && raster.width > 0 && raster.channels > 0, "a raster has a size");
    require(static_cast<int64_t>(samples.size()) == raster.bytes(), "the samples are that many");
  });
}
