// Picture files, image folders, splits and class indices.
#include "data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "data/error.h"
#include "data/image_folder_listing.h"
#include "data/image_format.h"
#include "tests/data/files.h"
#include "tests/data/picture_files.h"
#include "tests/data/pictures.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

std::vector<uint8_t> bytes_of(const std::string& content) {
  return {content.begin(), content.end()};
}

Image decode(const std::string& content, const DecodeOptions& options = {}) {
  return decode_image(bytes_of(content), "picture", options);
}

TEST(Image, png_keeps_every_pixel_of_every_kind) {
  const Image picture = testing::picture(13, 7);
  EXPECT_EQ(decode(testing::png(picture, PNG_FORMAT_RGB)).pixels, picture.pixels);
  EXPECT_EQ(decode(testing::png(picture, PNG_FORMAT_RGB)).height, 13);
  EXPECT_EQ(decode(testing::png(picture, PNG_FORMAT_RGB)).width, 7);
  // The opacity differs from pixel to pixel and is dropped.
  EXPECT_EQ(decode(testing::png(picture, PNG_FORMAT_RGBA)).pixels, picture.pixels);
  const Image grey = decode(testing::png(picture, PNG_FORMAT_GRAY));
  for (size_t i = 0; i < grey.pixels.size(); i += 3) {
    ASSERT_EQ(grey.pixels[i], picture.pixels[i / 3]);
    ASSERT_EQ(grey.pixels[i + 1], grey.pixels[i]);
    ASSERT_EQ(grey.pixels[i + 2], grey.pixels[i]);
  }
}

TEST(Image, png_says_something_about_gamma_and_no_pixel_changes) {
  const Image picture = testing::picture(13, 7);
  for (const png_uint_32 format : std::initializer_list<png_uint_32>{PNG_FORMAT_RGB, PNG_FORMAT_RGBA}) {
    for (const uint64_t gamma : {10000U, 45455U, 100000U, 220000U}) {
      const std::string gamma_chunk = testing::Bytes(true).number(gamma, 4).text;
      EXPECT_EQ(decode(testing::with_chunk(testing::png(picture, format), "gAMA", gamma_chunk)).pixels, picture.pixels);
    }
  }
}

double mean_difference(const Image& a, const Image& b) {
  if (a.height != b.height || a.width != b.width) return 256;
  double difference = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) difference += std::abs(a.pixels[i] - b.pixels[i]);
  return difference / static_cast<double>(a.pixels.size());
}

TEST(Image, jpeg_is_close_to_what_was_encoded_in_colours_or_in_inks) {
  const Image picture = testing::smooth_picture(50, 41);
  EXPECT_LT(mean_difference(decode(testing::jpeg(picture, 95)), picture), 2.0);
  EXPECT_LT(mean_difference(decode(testing::jpeg_in_inks(picture, 95, /*is_ycck=*/false)), picture), 2.0);
  EXPECT_LT(mean_difference(decode(testing::jpeg_in_inks(picture, 95, /*is_ycck=*/true)), picture), 2.0);
}

/// Each of these holds picture(9, 11).
std::vector<std::string> files_without_loss() {
  const Image picture = testing::picture(9, 11);
  std::vector<std::string> files = {testing::png(picture, PNG_FORMAT_RGB), testing::bmp(picture),
                                    testing::bmp(picture, /*is_top_down=*/true), testing::ppm(picture, true),
                                    testing::ppm(picture, false)};
  if (can_read(ImageFormat::kTiff)) {
    for (const bool flag : {false, true}) {
      files.push_back(testing::tiff(picture, {.is_big_endian = flag, .is_deflated = !flag}));
    }
  }
  return files;
}

TEST(Image, formats_without_loss_keep_every_pixel) {
  for (const std::string& content : files_without_loss()) {
    const Image read = decode(content);
    EXPECT_EQ(read.height, 9);
    EXPECT_EQ(read.width, 11);
    EXPECT_EQ(read.pixels, testing::picture(9, 11).pixels) << content.substr(0, 2);
  }
}

TEST(Image, webp_of_every_kind_is_read_and_opacity_dropped) {
  if (!can_read(ImageFormat::kWebP)) GTEST_SKIP() << "built without libwebp";
  for (const std::string& content :
       {testing::lossless_webp(), testing::webp_with_opacity(), testing::animated_webp()}) {
    const Image read = decode(content);
    EXPECT_EQ(read.height, 5);
    EXPECT_EQ(read.width, 7);
    EXPECT_EQ(read.pixels, testing::webp_picture().pixels);
  }
  EXPECT_EQ(decode(testing::lossy_webp()).pixels.size(), 5U * 7 * 3);
}

TEST(Image, a_progressive_jpeg_is_read_unless_its_scans_are_past_counting) {
  const Image picture = testing::smooth_picture(20, 31);
  const Image read = decode(testing::jpeg(picture, 95));
  EXPECT_EQ(decode(testing::jpeg(picture, 95, testing::progressive_scans(9, 1))).pixels, read.pixels);
  EXPECT_EQ(decode(testing::jpeg(picture, 95, testing::progressive_scans(1, 1))).pixels, read.pixels);  // 379 scans
  EXPECT_THAT([&] { decode(testing::jpeg(picture, 95, testing::progressive_scans(1, 2))); },
              ThrowsMessage<DataError>(HasSubstr("picture: not a valid JPEG file: more than 500 scans")));
}

TEST(Image, files_cut_short_are_refused_wherever_they_end) {
  constexpr size_t kEnd = 16;  // what comes after the last pixel
  std::vector<std::string> files = files_without_loss();
  files.push_back(testing::jpeg(testing::smooth_picture(40, 40), 80));
  files.push_back(testing::jpeg_in_inks(testing::smooth_picture(40, 40), 80, /*is_ycck=*/true));
  if (can_read(ImageFormat::kWebP)) {
    files.insert(files.end(), {testing::lossless_webp(), testing::lossy_webp()});
  }
  for (const std::string& content : files) {
    for (size_t size = 0; size + kEnd < content.size(); size += 1 + content.size() / 60) {
      EXPECT_THROW(decode(content.substr(0, size)), DataError) << size << " of " << content.size();
    }
  }
}

TEST(Image, other_formats_and_pictures_too_large_are_refused_by_name) {
  EXPECT_THAT(
      [] { decode("GIF89a"); },
      ThrowsMessage<DataError>("picture: expected a JPEG, PNG, BMP, PPM, PGM, TIFF or WebP file, got another format"));
  EXPECT_THAT([] { decode(""); }, ThrowsMessage<DataError>(HasSubstr("empty")));
  std::vector<std::string> files = files_without_loss();
  files.push_back(testing::jpeg(testing::picture(9, 11), 80));
  files.push_back(testing::jpeg_in_inks(testing::picture(9, 11), 80, /*is_ycck=*/false));
  for (const std::string& content : files) {
    EXPECT_NO_THROW(decode(content, {.most_pixels = 99}));
    EXPECT_THAT([&] { decode(content, {.most_pixels = 98}); },
                ThrowsMessage<DataError>(HasSubstr("1 to 98 pixels, its header says 11x9")));
  }
}

TEST(Image, sizes_beyond_what_the_file_holds_are_refused_before_memory_is_taken) {
  const DecodeOptions anything{.most_pixels = int64_t{1} << 40};
  constexpr int64_t kSide = 1 << 20;  // 3 TiB of pixels
  const auto refuses = [&](const std::string& content) {
    EXPECT_THAT([&] { decode(content, anything); }, ThrowsMessage<DataError>(HasSubstr("bytes of pixels, got")));
  };
  refuses(testing::BmpFile{}.bytes(kSide, kSide, "pixels"));
  refuses(testing::BmpFile{.bits = 1}.bytes(kSide, kSide, std::string(8, '\0')));
  for (const char* kind : {"P1", "P2", "P3", "P4", "P5", "P6"}) {
    refuses(kind + std::string("\n1048576 1048576\n") + (kind[1] == '1' || kind[1] == '4' ? "" : "65535\n") + "0 1 1");
  }
}

class FolderTest : public ::testing::Test {
 protected:
  void add(const fs::path& file) const {
    fs::create_directories((root() / file).parent_path());
    testing::write_file(root() / file, "");
  }
  const fs::path& root() const { return folder_.path(); }

  std::vector<std::string> names(const ImageListing& listing) const {
    std::vector<std::string> relative;
    for (const auto& file : listing.files) relative.push_back(file.lexically_relative(root()).string());
    return relative;
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(FolderTest, is_listed_in_the_order_of_torchvision) {
  for (const char* file : {"dog/2.jpg", "dog/10.JPEG", "cat/b/c/x.png", "cat/b-/x.png", "cat/z.PNG", "cat/notes.txt",
                           "top.jpg", "dog/3.bmp", "dog/4.PPM", "dog/5.pgm", "dog/6.pbm", "dog/7.gif"}) {
    add(file);
  }
  const ImageListing listing = list_image_folder(root());
  EXPECT_THAT(listing.class_names, ElementsAre("cat", "dog"));
  // sorted(os.walk()) compares paths as text, and '-' comes before '/'.
  EXPECT_THAT(names(listing), ElementsAre("cat/z.PNG", "cat/b-/x.png", "cat/b/c/x.png", "dog/10.JPEG", "dog/2.jpg",
                                          "dog/3.bmp", "dog/4.PPM", "dog/5.pgm"));
  EXPECT_THAT(listing.labels, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1));
  EXPECT_EQ(listing.notice, "");
}

TEST_F(FolderTest, tiff_and_webp_are_listed_where_they_can_be_read) {
  for (const char* file : {"a/1.tif", "a/2.TIFF", "a/3.webp", "a/4.jpg"}) add(file);
  std::vector<std::string> expected;
  if (can_read(ImageFormat::kTiff)) expected = {"a/1.tif", "a/2.TIFF"};
  if (can_read(ImageFormat::kWebP)) expected.push_back("a/3.webp");
  expected.push_back("a/4.jpg");
  const ImageListing listing = list_image_folder(root());
  EXPECT_EQ(names(listing), expected);
  EXPECT_EQ(listing.notice.empty(), expected.size() == 4);
}

TEST_F(FolderTest, without_classes_or_with_an_empty_class_is_refused) {
  EXPECT_THAT([&] { list_image_folder(root()); }, ThrowsMessage<DataError>(HasSubstr("a folder per class")));
  EXPECT_THROW(list_image_folder(root() / "none"), DataError);
  add("cat/x.jpg");
  fs::create_directories(root() / "dog");
  EXPECT_THAT([&] { list_image_folder(root()); }, ThrowsMessage<DataError>(HasSubstr((root() / "dog").string())));
}

TEST_F(FolderTest, a_split_takes_the_same_part_of_each_class_and_depends_on_the_seed_alone) {
  for (int i = 0; i < 20; ++i) add("a/" + std::to_string(i) + ".jpg");
  for (int i = 0; i < 9; ++i) add("b/" + std::to_string(i) + ".jpg");
  const ImageListing listing = list_image_folder(root());
  const ImageSplit split = split_listing(listing, 0.25, 7);
  EXPECT_EQ(std::count(split.validation.labels.begin(), split.validation.labels.end(), 0), 5);
  EXPECT_EQ(std::count(split.validation.labels.begin(), split.validation.labels.end(), 1), 2);
  std::set<fs::path> all(split.train.files.begin(), split.train.files.end());
  all.insert(split.validation.files.begin(), split.validation.files.end());
  EXPECT_EQ(all.size(), 29U);
  EXPECT_EQ(split.train.files.size(), 22U);
  EXPECT_TRUE(std::is_sorted(split.train.labels.begin(), split.train.labels.end()));
  EXPECT_EQ(split_listing(listing, 0.25, 7).validation.files, split.validation.files);
  EXPECT_NE(split_listing(listing, 0.25, 8).validation.files, split.validation.files);
  EXPECT_THAT(split_listing(listing, 0, 7).validation.files, IsEmpty());
  EXPECT_THAT(split_listing(listing, 1, 7).train.files, IsEmpty());
  EXPECT_THROW(split_listing(listing, 1.5, 7), std::invalid_argument);
  EXPECT_THROW(split_listing(listing, -0.1, 7), std::invalid_argument);
}

TEST_F(FolderTest, class_indices_are_written_as_json_and_read_back) {
  const fs::path file = root() / "class_indices.json";
  const std::vector<std::string> names = {"daisy", "\"quoted\"", "c", "d", "e", "f", "g", "h", "i", "j", "Größe"};
  write_class_indices(file, names);
  EXPECT_EQ(read_class_indices(file), names);
  testing::write_file(file, "{\n  \"1\": \"b\", \"0\": \"a\"\n}");
  EXPECT_THAT(read_class_indices(file), ElementsAre("a", "b"));
  for (const char* bad : {"", "[]", "{\"0\": 1}", "{\"1\": \"b\"}", "{\"0\": \"a\", \"2\": \"b\"}", "{\"0\": "}) {
    testing::write_file(file, bad);
    EXPECT_THAT([&] { read_class_indices(file); }, ThrowsMessage<DataError>(HasSubstr(file.string()))) << bad;
  }
}

}  // namespace
}  // namespace ddp
