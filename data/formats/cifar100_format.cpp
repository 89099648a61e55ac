#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <string>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "ddprun/data/file_formats.h"

namespace ddp {
namespace {

constexpr size_t kImage = size_t{3} * 32 * 32;
constexpr size_t kRecord = 2 + kImage;
constexpr uint64_t kMostImages = 1'000'000;
constexpr uint64_t kMostNamesBytes = 65'536;

int64_t checked_label(const std::filesystem::path& file, size_t image, const char* kind, uint8_t label,
                      int64_t classes) {
  if (label < classes) return label;
  throw DataError(file, "image " + std::to_string(image) + ": expected a " + kind + " label from 0 to " +
                            std::to_string(classes - 1) + ", got " + std::to_string(label) +
                            ": the file is damaged or not CIFAR-100's binary version");
}

Cifar100Content read_records(const std::filesystem::path& file) {
  ByteSource source(file);
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(file, error);
  if (error || size == 0 || size % kRecord != 0 || size / kRecord > kMostImages) {
    throw DataError(file, "expected whole records of " + std::to_string(kRecord) +
                              " bytes (two labels and 3x32x32 pixels), got " + std::to_string(error ? 0 : size) +
                              " bytes: the file is cut short or not CIFAR-100's binary version; fetch it again");
  }
  const auto count = static_cast<size_t>(size / kRecord);
  Cifar100Content content;
  content.images.resize(count * kImage);
  for (size_t image = 0; image < count; ++image) {
    std::array<uint8_t, 2> labels{};
    source.read(labels);
    content.coarse_labels.push_back(checked_label(file, image, "coarse", labels[0], kCifar100CoarseClasses));
    content.fine_labels.push_back(checked_label(file, image, "fine", labels[1], kCifar100FineClasses));
    source.read(std::span(content.images).subspan(image * kImage, kImage));
  }
  source.require_end();
  return content;
}

}  // namespace

Cifar100Content read_cifar100_file(const std::filesystem::path& file) {
  return with_data_errors(file, [&] { return read_records(file); });
}

std::vector<std::string> read_label_names(const std::filesystem::path& file, int64_t count) {
  std::vector<std::string> names;
  std::istringstream lines(read_small_file(file, kMostNamesBytes));
  for (std::string name; std::getline(lines, name);) {
    while (!name.empty() && (name.back() == '\r' || name.back() == ' ')) name.pop_back();
    if (name.empty()) continue;
    // Names end up on terminals.
    if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      throw DataError(file,
                      "line " + std::to_string(names.size() + 1) + ": a class name has a control character in it");
    }
    names.push_back(name);
  }
  if (static_cast<int64_t>(names.size()) != count) {
    throw DataError(
        file, "expected " + std::to_string(count) + " class names, one a line, got " + std::to_string(names.size()));
  }
  return names;
}

}  // namespace ddp
