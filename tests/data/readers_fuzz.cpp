// Random damage to files of every kind: a reader gives something of the size that it says, or a DataError that names
// the file. Nothing else, and no memory for what a file only claims.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "data/error.h"
#include "data/idx_format.h"
#include "data/image.h"
#include "data/image_folder_listing.h"
#include "data/nifti_format.h"
#include "tests/data/files.h"
#include "tests/data/formats.h"
#include "tests/data/gzip.h"
#include "tests/data/pictures.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

void damage(std::string& content, std::mt19937& random) {
  for (size_t times = random() % 4; times > 0 && !content.empty(); --times) {
    const size_t at = random() % content.size();
    // Headers are where the interesting bytes are.
    const size_t near_the_front = random() % std::min<size_t>(content.size(), 64);
    switch (random() % 5) {
      case 0:
        content.resize(at);
        break;
      case 1:
        content[at] = static_cast<char>(random());
        break;
      case 2:
        content[near_the_front] = static_cast<char>(random());
        break;
      case 3:
        content.insert(at, random() % 9, static_cast<char>(random()));
        break;
      default:
        content.erase(at, random() % 9);
    }
  }
}

struct Outcomes {
  int accepted = 0;
  int refused = 0;
};

/// `check` reads the file and asserts what it got.
Outcomes fuzz(const std::string& original, int rounds, const std::function<void(const fs::path&)>& check) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "file";
  std::mt19937 random(static_cast<uint32_t>(original.size()));
  Outcomes outcomes;
  for (int round = 0; round < rounds; ++round) {
    std::string content = original;
    damage(content, random);
    testing::write_file(file, content);
    try {
      check(file);
      ++outcomes.accepted;
    } catch (const DataError& error) {
      EXPECT_EQ(error.path(), file);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++outcomes.refused;
    }
  }
  EXPECT_GT(outcomes.accepted, rounds / 20);
  EXPECT_GT(outcomes.refused, rounds / 20);
  return outcomes;
}

void check_image(const fs::path& file) {
  const Image image = read_image(file, {.most_pixels = 1 << 20});
  ASSERT_EQ(static_cast<int64_t>(image.pixels.size()), image.height * image.width * 3);
}

TEST(ReadersFuzz, png) {
  fuzz(testing::png(testing::picture(20, 30), PNG_FORMAT_RGBA), 400, check_image);
}

TEST(ReadersFuzz, jpeg) {
  fuzz(testing::jpeg(testing::smooth_picture(40, 30), 75), 400, check_image);
}

TEST(ReadersFuzz, idx) {
  const std::string content = testing::idx({3, 4, 5}, std::string(60, 'x'));
  for (const std::string& stored : {content, testing::gzip(content)}) {
    fuzz(stored, 300, [](const fs::path& file) {
      const IdxArray array = read_idx(file, 3);
      ASSERT_EQ(static_cast<int64_t>(array.values.size()), array.shape[0] * array.shape[1] * array.shape[2]);
    });
  }
}

TEST(ReadersFuzz, nifti) {
  const testing::NiftiFile nifti{.dimensions = {3, 4, 4, 4}};
  const std::string content = nifti.bytes<float>(16, std::vector<float>(64, 1.5F));
  for (const std::string& stored : {content, testing::gzip(content)}) {
    fuzz(stored, 300, [](const fs::path& file) {
      const NiftiVolume volume = read_nifti(file);
      ASSERT_EQ(static_cast<int64_t>(volume.values.size()), volume.depth * volume.height * volume.width);
    });
  }
}

TEST(ReadersFuzz, class_indices) {
  fuzz("{\"0\": \"daisy\", \"1\": \"roses\", \"2\": \"tulips\"}", 300,
       [](const fs::path& file) { ASSERT_LE(read_class_indices(file).size(), 4U); });
}

}  // namespace
}  // namespace ddp
