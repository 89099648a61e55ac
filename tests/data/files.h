// Temporary folders and made-up CIFAR-10 files for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "data/cifar10_format.h"

namespace ddp::testing {

/// A new folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ddprun-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name + " failed");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << content;
  if (!stream.flush()) throw std::runtime_error("cannot write " + path.string());
}

/// The pixel byte number `position` of the made-up image number `image`: different for neighbours in every direction.
inline uint8_t pixel(int64_t image, int64_t position) {
  return static_cast<uint8_t>(31 * image + 7 * position + position / 251);
}

/// `count` records; image i is made of pixel(first + i, …) and has the label (first + i) % 10.
inline std::string records(int64_t first, int64_t count) {
  std::string content;
  for (int64_t image = first; image < first + count; ++image) {
    content.push_back(static_cast<char>(image % 10));
    for (int64_t i = 0; i < kCifar10ImageBytes; ++i) content.push_back(static_cast<char>(pixel(image, i)));
  }
  return content;
}

}  // namespace ddp::testing
