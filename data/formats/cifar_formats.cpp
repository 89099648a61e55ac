#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "ddprun/data/file_formats.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr size_t kImage = size_t{3} * 32 * 32;
constexpr size_t kRecord = 2 + kImage;
constexpr uint64_t kMaxImages = 1'000'000;
constexpr uint64_t kMaxCifar100NamesBytes = 65'536;

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
  if (error || size == 0 || size % kRecord != 0 || size / kRecord > kMaxImages) {
    throw DataError(file, "expected whole records of " + std::to_string(kRecord) +
                              " bytes (two labels and 3x32x32 pixels), got " + std::to_string(error ? 0 : size) +
                              " bytes: the file is truncated or not CIFAR-100's binary version; fetch it again");
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

constexpr int kTrainFiles = 5;
constexpr uintmax_t kMaxCifar10NamesBytes = 4096;

std::string reason() {
  return errno == 0 ? "read error" : std::generic_category().message(errno);
}

/// Returns the type of a file. A path that exists but cannot be examined (for example a loop of links) counts as
/// existing.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  return type == fs::file_type::none ? fs::file_type::unknown : type;
}

bool is_there(const fs::path& path) {
  return type_of(path) != fs::file_type::not_found;
}

fs::path train_file(const fs::path& dir, int number) {
  return dir / ("data_batch_" + std::to_string(number) + ".bin");
}

DataError missing(const fs::path& dir, const fs::path& file) {
  const fs::path inner = dir / "cifar-10-batches-bin";
  return DataError(file, "file not found; expected CIFAR-10's binary version in this folder" +
                             (is_there(inner) ? ", perhaps you mean " + inner.string() : std::string()));
}

/// Opens only regular files, because a pipe or a device could block or never end.
std::ifstream open_file(const fs::path& file) {
  errno = 0;
  std::ifstream stream;
  const fs::file_type type = type_of(file);
  if (type == fs::file_type::directory) throw DataError(file, "expected a file, got a folder");
  if (type != fs::file_type::regular && type != fs::file_type::not_found && type != fs::file_type::unknown) {
    throw DataError(file, "expected a regular file, got a pipe, socket or device");
  }
  stream.open(file, std::ios::binary);
  if (!stream) throw DataError(file, "cannot be opened: " + reason());
  return stream;
}

std::string trimmed(std::string line) {
  const auto is_space = [](unsigned char character) { return std::isspace(character) != 0; };
  line.erase(std::find_if_not(line.rbegin(), line.rend(), is_space).base(), line.end());
  line.erase(line.begin(), std::find_if_not(line.begin(), line.end(), is_space));
  return line;
}

}  // namespace

std::vector<fs::path> cifar10_files(const fs::path& dir, Cifar10Split split) {
  if (!is_there(dir)) throw DataError(dir, "data folder not found; expected a folder with CIFAR-10's binary files");
  std::error_code error;
  const fs::directory_iterator listing(dir, error);
  if (error) {
    throw DataError(dir, "expected the folder that holds CIFAR-10's binary files: " + error.message());
  }
  if (split == Cifar10Split::kTest) {
    const fs::path file = dir / "test_batch.bin";
    if (!is_there(file)) throw missing(dir, file);
    return {file};
  }
  int last = kTrainFiles;
  while (last > 1 && !is_there(train_file(dir, last))) --last;
  std::vector<fs::path> files;
  for (int number = 1; number <= last; ++number) {
    files.push_back(train_file(dir, number));
    if (!is_there(files.back())) throw missing(dir, files.back());
  }
  return files;
}

int64_t cifar10_image_count(const fs::path& file) {
  open_file(file);
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) throw DataError(file, "cannot be read: " + error.message());
  const auto record = static_cast<uintmax_t>(kCifar10RecordBytes);
  if (size == 0 || size % record != 0) {
    throw DataError(file, "expected whole records of " + std::to_string(record) +
                              " bytes (label and 3x32x32 pixels), got " + std::to_string(size) +
                              " bytes: the file is truncated or not CIFAR-10's binary version; fetch it again");
  }
  if (size / record > static_cast<uintmax_t>(kCifar10MaxImagesPerFile)) {
    throw DataError(file, "expected at most " + std::to_string(kCifar10MaxImagesPerFile) + " images, got " +
                              std::to_string(size / record) + ": not a CIFAR-10 file");
  }
  return static_cast<int64_t>(size / record);
}

void read_cifar10_file(const fs::path& file, std::span<uint8_t> images, std::span<int64_t> labels) {
  constexpr size_t kRecord = kCifar10RecordBytes;
  constexpr size_t kImage = kCifar10ImageBytes;
  constexpr size_t kRecordsPerRead = 256;
  if (images.size() != labels.size() * kImage) {
    throw std::invalid_argument("read_cifar10_file: the buffers are for " + std::to_string(labels.size()) +
                                " labels but " + std::to_string(images.size()) + " bytes of images");
  }
  std::ifstream stream = open_file(file);
  std::vector<char> records(kRecordsPerRead * kRecord);
  for (size_t begin = 0; begin < labels.size(); begin += kRecordsPerRead) {
    const size_t count = std::min(kRecordsPerRead, labels.size() - begin);
    errno = 0;
    if (!stream.read(records.data(), static_cast<std::streamsize>(count * kRecord))) {
      const size_t got = begin * kRecord + static_cast<size_t>(stream.gcount());
      throw DataError(file, "expected " + std::to_string(labels.size() * kRecord) + " bytes, could read " +
                                std::to_string(got) + ": " +
                                (stream.eof() ? "the file shrank while reading" : reason()));
    }
    for (size_t i = 0; i < count; ++i) {
      const auto* record = reinterpret_cast<const uint8_t*>(records.data()) + i * kRecord;
      if (record[0] >= kCifar10Classes) {
        throw DataError(file, "image " + std::to_string(begin + i) + ": expected a label from 0 to 9, got " +
                                  std::to_string(record[0]) + ": the file is damaged or not CIFAR-10's binary version");
      }
      labels[begin + i] = record[0];
      std::memcpy(images.data() + (begin + i) * kImage, record + 1, kImage);
    }
  }
}

std::vector<std::string> read_cifar10_class_names(const fs::path& dir) {
  std::vector<std::string> names;
  const fs::path file = dir / "batches.meta.txt";
  if (!is_there(file)) {
    for (int64_t label = 0; label < kCifar10Classes; ++label) names.push_back(std::to_string(label));
    return names;
  }
  std::ifstream stream = open_file(file);
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) throw DataError(file, "cannot be read: " + error.message());
  if (size > kMaxCifar10NamesBytes) {
    throw DataError(file, "expected ten class names, got " + std::to_string(size) + " bytes");
  }
  std::string content(static_cast<size_t>(size), '\0');
  errno = 0;
  if (size > 0 && !stream.read(content.data(), static_cast<std::streamsize>(size))) {
    throw DataError(file, "cannot be read: " + reason());
  }
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    std::string name = trimmed(line);
    if (name.empty()) continue;
    // Control characters are rejected, because names are printed on terminals.
    if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      throw DataError(file,
                      "line " + std::to_string(names.size() + 1) + ": a class name has a control character in it");
    }
    names.push_back(std::move(name));
  }
  if (names.size() != static_cast<size_t>(kCifar10Classes)) {
    throw DataError(file, "expected ten class names, one a line, got " + std::to_string(names.size()));
  }
  return names;
}

Cifar100Content read_cifar100_file(const std::filesystem::path& file) {
  return with_data_errors(file, [&] { return read_records(file); });
}

std::vector<std::string> read_label_names(const std::filesystem::path& file, int64_t count) {
  std::vector<std::string> names;
  std::istringstream lines(read_small_file(file, kMaxCifar100NamesBytes));
  for (std::string name; std::getline(lines, name);) {
    while (!name.empty() && (name.back() == '\r' || name.back() == ' ')) name.pop_back();
    if (name.empty()) continue;
    // Control characters are rejected, because names are printed on terminals.
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
