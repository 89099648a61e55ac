// JPEG files of which a part is decoded. The first bytes choose the part.
#include "tests/data/fuzz/reader.h"
#include "tests/data/pictures.h"

namespace {

ddp::ResizedPart part_of(int64_t height, int64_t width, fuzz::Input& input) {
  const auto below = [&](int64_t most) { return int64_t{input.byte()} * most / 256; };
  ddp::ResizedPart wanted;
  wanted.box.height = 1 + below(height);
  wanted.box.width = 1 + below(width);
  wanted.box.top = below(height - wanted.box.height + 1);
  wanted.box.left = below(width - wanted.box.width + 1);
  wanted.height = wanted.part.height = 1 + below(20);
  wanted.width = wanted.part.width = 1 + below(20);
  return wanted;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  const ddp::Image picture = ddp::test::smooth_picture(60, 57);
  for (const auto* bytes : {"\0\xff\xff\0\0\xff\xff", "\1\x20\x20\x80\x80\x40\x40", "\2\x80\xff\xff\0\1\1"}) {
    const std::string place(bytes, 7);
    for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
      all.push_back(place + ddp::test::jpeg(picture, 75, {}, across, down));
    }
    all.push_back(place + ddp::test::jpeg(picture, 75, ddp::test::progressive_scans(21, 1)));
    all.push_back(place + ddp::test::jpeg_in_inks(picture, 75, true));
  }
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const auto decoding =
      std::array{ddp::PartDecoding::kRows, ddp::PartDecoding::kReduced, ddp::PartDecoding::kWhole}.at(input.byte() % 3);
  std::array<std::uint8_t, 6> place{};
  for (auto& byte : place) byte = input.byte();
  const std::string file(input.rest());
  if (!file.starts_with("\xFF\xD8\xFF")) return Outcome::kRefused;
  const std::vector<uint8_t> content(file.begin(), file.end());
  return may_refuse("picture", [&] {
    const auto choose = [&](int64_t height, int64_t width) {
      Input numbers(std::string_view(reinterpret_cast<const char*>(place.data()), place.size()));
      return part_of(height, width, numbers);
    };
    constexpr ddp::DecodeOptions kOptions{.most_pixels = 1 << 22};
    const ddp::Image part = ddp::decode_part(content, "picture", choose, decoding, kOptions);
    if (decoding == ddp::PartDecoding::kWhole) {
      const ddp::Image whole = ddp::decode_image(content, "picture", kOptions);
      const ddp::ResizedPart wanted = choose(whole.height, whole.width);
      const auto expected = ddp::resize_part(whole, wanted.box, wanted.height, wanted.width, wanted.part);
      require(part.pixels == expected.pixels, "a part has the pixels of the whole picture");
    }
    require(part.pixels.size() == static_cast<std::size_t>(part.height * part.width * 3), "a part is whole");
  });
}
