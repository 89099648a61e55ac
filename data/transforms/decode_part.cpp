#include <exception>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"
#include "data/transforms/resize_window.h"
#include "ddprun/data/image.h"

namespace ddp {
namespace {

/// Returns the largest reduction for which the box is still at least as large as the output that is made from it.
int reduction_of(const ResizedPart& wanted) {
  int reduction = 8;
  while (reduction > 1 &&
         (wanted.box.height < reduction * wanted.height || wanted.box.width < reduction * wanted.width)) {
    reduction /= 2;
  }
  return reduction;
}

int64_t reduced(int64_t side, int reduction) {
  return (side + reduction - 1) / reduction;
}

/// Returns the part of the reduced picture, rounded outwards to whole pixels.
ResizedPart reduced(ResizedPart wanted, int reduction) {
  const auto shrink = [&](int64_t& begin, int64_t& length) {
    const int64_t end = reduced(begin + length, reduction);
    begin /= reduction;
    length = end - begin;
  };
  shrink(wanted.box.top, wanted.box.height);
  shrink(wanted.box.left, wanted.box.width);
  return wanted;
}

}  // namespace

Image decode_part(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                  const std::function<ResizedPart(int64_t height, int64_t width)>& choose, PartDecoding decoding,
                  const DecodeOptions& options) {
  if (image_format(bytes) != ImageFormat::kJpeg) {
    const Image image = decode_image(bytes, path, options);
    const ResizedPart wanted = choose(image.height, image.width);
    return resize_part(image, wanted.box, wanted.height, wanted.width, wanted.part);
  }
  ResizedPart wanted;
  PixelWindow window;
  std::exception_ptr refused;  // an exception from `choose` is not an error of the file
  const auto choose_box = [&](int64_t height, int64_t width) {
    try {
      wanted = choose(height, width);
      check_resized_part(height, width, wanted);
    } catch (...) {
      refused = std::current_exception();
      throw;
    }
    const int reduction = decoding == PartDecoding::kReduced ? reduction_of(wanted) : 1;
    wanted = reduced(wanted, reduction);
    window = {.height = reduced(height, reduction), .width = reduced(width, reduction)};
    return DecodedBox{.box = reach_of(wanted), .reduction = reduction, .reads_all = decoding == PartDecoding::kWhole};
  };
  DecodedPart part;
  try {
    part = with_data_errors(path, [&] { return decode_jpeg_box(bytes, path, options, choose_box); });
  } catch (const DataError&) {
    if (refused) std::rethrow_exception(refused);
    throw;
  }
  window.pixels = &part.pixels;
  window.top = part.top;
  window.left = part.left;
  return resize_window(window, wanted);
}

}  // namespace ddp
