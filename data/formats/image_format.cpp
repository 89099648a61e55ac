#include "data/formats/image_format.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

/// Returns null for kUnknown.
const PictureFormat* find(ImageFormat format) {
  const auto* found = std::ranges::find(kPictureFormats, format, &PictureFormat::format);
  return found == std::end(kPictureFormats) ? nullptr : found;
}

}  // namespace

ImageFormat image_format(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 12));
  for (const PictureFormat& known : kPictureFormats) {
    if (known.is_it(text)) return known.format;
  }
  return ImageFormat::kUnknown;
}

ImageFormat image_format_of_name(const std::filesystem::path& file) {
  std::string name = file.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const PictureFormat& known : kPictureFormats) {
    // As in torchvision, a file whose whole name is ".png" also matches.
    const auto is_ending = [&](std::string_view extension) { return !extension.empty() && name.ends_with(extension); };
    if (std::ranges::any_of(known.extensions, is_ending)) return known.format;
  }
  return ImageFormat::kUnknown;
}

bool can_read(ImageFormat format) {
  const PictureFormat* known = find(format);
  return known != nullptr && known->decode != nullptr;
}

std::string format_name(ImageFormat format) {
  const PictureFormat* known = find(format);
  return known == nullptr ? "unknown" : std::string(known->name);
}

std::string reading_advice(ImageFormat format) {
  const PictureFormat* known = find(format);
  if (known == nullptr || known->library.empty()) return "ddprun does not read this format";
  const std::string package(known->package);
  return "this ddprun was built without " + std::string(known->library) + ": install " + package +
         "-dev (Debian, Ubuntu) or " + (known->fedora.empty() ? package : std::string(known->fedora)) +
         "-devel (Fedora) and build it again";
}

}  // namespace ddp
