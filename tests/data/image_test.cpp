// Picture files, image folders, splits and class indices.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <stdexcept>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

#include "data/formats/image_format.h"
#include "tests/data/picture_files.h"
#include "tests/data/pictures.h"
#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using test::ElementsAre;

std::vector<uint8_t> bytes_of(const std::string& content) {
  return {content.begin(), content.end()};
}

Image decode(const std::string& content, const DecodeOptions& options = {}) {
  return decode_image(bytes_of(content), "picture", options);
}

TEST_CASE("Image: PNG keeps every pixel of every kind") {
  const Image picture = test::picture(13, 7);
  CHECK(decode(test::png(picture, PNG_FORMAT_RGB)).pixels == picture.pixels);
  CHECK(decode(test::png(picture, PNG_FORMAT_RGB)).height == 13);
  CHECK(decode(test::png(picture, PNG_FORMAT_RGB)).width == 7);
  // The opacity differs from pixel to pixel and is dropped.
  CHECK(decode(test::png(picture, PNG_FORMAT_RGBA)).pixels == picture.pixels);
  const Image grey = decode(test::png(picture, PNG_FORMAT_GRAY));
  for (size_t i = 0; i < grey.pixels.size(); i += 3) {
    REQUIRE(grey.pixels[i] == picture.pixels[i / 3]);
    REQUIRE(grey.pixels[i + 1] == grey.pixels[i]);
    REQUIRE(grey.pixels[i + 2] == grey.pixels[i]);
  }
}

TEST_CASE("Image: PNG says something about gamma and no pixel changes") {
  const Image picture = test::picture(13, 7);
  for (const png_uint_32 format : std::initializer_list<png_uint_32>{PNG_FORMAT_RGB, PNG_FORMAT_RGBA}) {
    for (const uint64_t gamma : {10000U, 45455U, 100000U, 220000U}) {
      const std::string gamma_chunk = test::Bytes(true).number(gamma, 4).text;
      CHECK(decode(test::with_chunk(test::png(picture, format), "gAMA", gamma_chunk)).pixels == picture.pixels);
    }
  }
}

double mean_difference(const Image& a, const Image& b) {
  if (a.height != b.height || a.width != b.width) return 256;
  double difference = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) difference += std::abs(a.pixels[i] - b.pixels[i]);
  return difference / static_cast<double>(a.pixels.size());
}

TEST_CASE("Image: JPEG is close to what was encoded in colours or in inks") {
  const Image picture = test::smooth_picture(50, 41);
  CHECK(mean_difference(decode(test::jpeg(picture, 95)), picture) < 2.0);
  CHECK(mean_difference(decode(test::jpeg_in_inks(picture, 95, /*is_ycck=*/false)), picture) < 2.0);
  CHECK(mean_difference(decode(test::jpeg_in_inks(picture, 95, /*is_ycck=*/true)), picture) < 2.0);
}

/// Each of these holds picture(9, 11).
std::vector<std::string> files_without_loss() {
  const Image picture = test::picture(9, 11);
  std::vector<std::string> files = {test::png(picture, PNG_FORMAT_RGB), test::bmp(picture),
                                    test::bmp(picture, /*is_top_down=*/true), test::ppm(picture, true),
                                    test::ppm(picture, false)};
  if (can_read(ImageFormat::kTiff)) {
    for (const bool flag : {false, true}) {
      files.push_back(test::tiff(picture, {.is_big_endian = flag, .is_deflated = !flag}));
    }
  }
  return files;
}

TEST_CASE("Image: formats without loss keep every pixel") {
  for (const std::string& content : files_without_loss()) {
    const Image read = decode(content);
    CHECK(read.height == 9);
    CHECK(read.width == 11);
    INFO(content.substr(0, 2));
    CHECK(read.pixels == test::picture(9, 11).pixels);
  }
}

TEST_CASE("Image: WebP of every kind is read and opacity dropped") {
  if (!can_read(ImageFormat::kWebP)) SKIP("built without libwebp");
  for (const std::string& content : {test::lossless_webp(), test::webp_with_opacity(), test::animated_webp()}) {
    const Image read = decode(content);
    CHECK(read.height == 5);
    CHECK(read.width == 7);
    CHECK(read.pixels == test::webp_picture().pixels);
  }
  CHECK(decode(test::lossy_webp()).pixels.size() == 5U * 7 * 3);
}

TEST_CASE("Image: a progressive JPEG is read unless its scans are past counting") {
  const Image picture = test::smooth_picture(20, 31);
  const Image read = decode(test::jpeg(picture, 95));
  CHECK(decode(test::jpeg(picture, 95, test::progressive_scans(9, 1))).pixels == read.pixels);
  CHECK(decode(test::jpeg(picture, 95, test::progressive_scans(1, 1))).pixels == read.pixels);  // 379 scans
  CHECK_THROWS_MATCHES(decode(test::jpeg(picture, 95, test::progressive_scans(1, 2))), DataError,
                       MessageMatches(ContainsSubstring("picture: not a valid JPEG file: more than 500 scans")));
}

TEST_CASE("Image: files truncated are refused wherever they end") {
  constexpr size_t kEnd = 16;  // what comes after the last pixel
  std::vector<std::string> files = files_without_loss();
  files.push_back(test::jpeg(test::smooth_picture(40, 40), 80));
  files.push_back(test::jpeg_in_inks(test::smooth_picture(40, 40), 80, /*is_ycck=*/true));
  if (can_read(ImageFormat::kWebP)) {
    files.insert(files.end(), {test::lossless_webp(), test::lossy_webp()});
  }
  for (const std::string& content : files) {
    for (size_t size = 0; size + kEnd < content.size(); size += 1 + content.size() / 60) {
      INFO(size << " of " << content.size());
      CHECK_THROWS_AS(decode(content.substr(0, size)), DataError);
    }
  }
}

TEST_CASE("Image: other formats and pictures too large are refused by name") {
  CHECK_THROWS_MATCHES(
      decode("%PDF-1.4"), DataError,
      Message(
          "picture: expected a JPEG, PNG, BMP, PPM, PGM, GIF, TIFF, WebP, AVIF or JPEG 2000 file, got another format"));
  CHECK_THROWS_MATCHES(decode(""), DataError, MessageMatches(ContainsSubstring("empty")));
  std::vector<std::string> files = files_without_loss();
  files.push_back(test::jpeg(test::picture(9, 11), 80));
  files.push_back(test::jpeg_in_inks(test::picture(9, 11), 80, /*is_ycck=*/false));
  for (const std::string& content : files) {
    CHECK_NOTHROW(decode(content, {.most_pixels = 99}));
    CHECK_THROWS_MATCHES(decode(content, {.most_pixels = 98}), DataError,
                         MessageMatches(ContainsSubstring("1 to 98 pixels, but its header says 11x9")));
  }
}

TEST_CASE("Image: sizes beyond what the file holds are refused before memory is taken") {
  const DecodeOptions anything{.most_pixels = int64_t{1} << 40};
  constexpr int64_t kSide = 1'000'000;  // 3 TB of pixels
  const auto refuses = [&](const std::string& content) {
    CHECK_THROWS_MATCHES(decode(content, anything), DataError,
                         MessageMatches(ContainsSubstring("bytes of pixels, got")));
  };
  refuses(test::BmpFile{}.bytes(kSide, kSide, "pixels"));
  refuses(test::BmpFile{.bits = 1}.bytes(kSide, kSide, std::string(8, '\0')));
  for (const char* kind : {"P1", "P2", "P3", "P4", "P5", "P6"}) {
    refuses(kind + std::string("\n1000000 1000000\n") + (kind[1] == '1' || kind[1] == '4' ? "" : "65535\n") + "0 1 1");
  }
}

TEST_CASE("Image: sides and strips that a file of its size cannot hold are refused by name") {
  const auto refuses = [](const std::string& content, const std::string& cause) {
    INFO(cause);
    CHECK_THROWS_MATCHES(decode(content), DataError, MessageMatches(ContainsSubstring(cause)));
  };
  refuses("P4\n1000001 1\n" + std::string(125001, 'x'), "sides of at most 1000000 pixels");
  std::string claims = test::png(test::picture(4, 4), PNG_FORMAT_RGB);
  const auto side = test::Bytes(true).number(16384, 4).text;
  claims.replace(16, 8, side + side);
  const uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(claims.data() + 12), 17);
  claims.replace(29, 4, test::Bytes(true).number(sum, 4).text);
  refuses(claims, "too short for its pixels");
  if (!can_read(ImageFormat::kTiff)) return;
  using test::TiffBytes;
  const std::string bytes(100, 'x');
  refuses(TiffBytes{.tags = {{258, {8}}, {277, {1500}}}}.bytes(4096, 4096, bytes), "would be decompressed to");
  refuses(TiffBytes{.tags = {{258, {8}}, {277, {65535}}}}.bytes(4096, 4096, bytes),
          "bytes of memory in addition to the picture");
  refuses(TiffBytes{.tags = {{322, {16384}}, {323, {16384}}, {324, {8}}, {325, {100}}}}.bytes(4096, 4096, bytes),
          "tiles of 16384x4096 pixels of 3 samples need 201326592 bytes of memory in addition to the picture");
  refuses(TiffBytes{.is_deflated = true}.bytes(4096, 4096, bytes), "cannot hold 4096x4096 pixels of 3 samples");
  refuses(TiffBytes{}.bytes(4096, 4096, bytes), "more than 16 times the file's bytes");  // libtiff divides the strip
}

TEST_CASE("Image: a tile that is larger than the picture is read as far as the picture goes") {
  if (!can_read(ImageFormat::kTiff)) SKIP("built without libtiff");
  const Image picture = test::picture(6, 8);
  std::string tile(size_t{64} * 64 * 3, 'x');
  for (size_t y = 0; y < 6; ++y) {
    for (size_t i = 0; i < 24; ++i) tile[y * 64 * 3 + i] = static_cast<char>(picture.pixels[y * 24 + i]);
  }
  const test::TiffBytes how{.tags = {{322, {64}}, {323, {64}}, {324, {8}}, {325, {tile.size()}}}};
  CHECK(decode(how.bytes(6, 8, tile)).pixels == picture.pixels);
}

TEST_CASE("Image: a strip that is too large for memory of its own gives the same pixels row by row") {
  if (!can_read(ImageFormat::kTiff)) SKIP("built without libtiff");
  const Image picture = test::picture(3000, 2000);  // 18 MB in one strip
  for (const bool is_deflated : {false, true}) {
    CHECK(decode(test::tiff(picture, {.is_deflated = is_deflated})).pixels == picture.pixels);
  }
  // Turned by half and by a quarter: the rows go to other places.
  Image reversed = picture;
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    const size_t pixel = picture.pixels.size() / 3 - 1 - i / 3;
    reversed.pixels[i] = picture.pixels[3 * pixel + i % 3];
  }
  CHECK(decode(test::tiff(picture, {.tags = {{274, {3}}}})).pixels == reversed.pixels);
  const Image turned = decode(test::tiff(picture, {.is_deflated = true, .tags = {{274, {6}}}}));
  REQUIRE(turned.height == 2000);
  bool is_same = true;
  for (int64_t y = 0; y < 2000; ++y) {
    for (int64_t x = 0; x < 3000; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        is_same &= turned.pixels[static_cast<size_t>((y * 3000 + x) * 3 + c)] ==
                   picture.pixels[static_cast<size_t>(((2999 - x) * 2000 + y) * 3 + c)];
      }
    }
  }
  CHECK(is_same);
}

TEST_CASE("Image: whatever a reader throws is a DataError that names the file") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("sanitizers reserve more than the limit");
#endif
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit small{size_t{400} << 20, before.rlim_max};
  const std::string content = test::BmpFile{.bits = 8, .compression = 1, .palette = std::string(1024, 'x')}.bytes(
      12000, 14000, std::string("\0\1", 2));  // 504 MB of one colour
  setrlimit(RLIMIT_AS, &small);
  std::string said;
  try {
    decode(content);
  } catch (const DataError& error) {
    said = error.what();
  } catch (const std::exception&) {
  }
  setrlimit(RLIMIT_AS, &before);
  CHECK(said == "picture: there is not enough memory to read it");
}

class FolderTest {
 protected:
  void add(const fs::path& file) const {
    fs::create_directories((root() / file).parent_path());
    test::write_file(root() / file, "");
  }
  const fs::path& root() const { return folder_.path(); }

  std::vector<std::string> names(const ImageListing& listing) const {
    std::vector<std::string> relative;
    for (const auto& file : listing.files) relative.push_back(file.lexically_relative(root()).string());
    return relative;
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(FolderTest, "Folder: is listed in the order of torchvision") {
  for (const char* file : {"dog/2.jpg", "dog/10.JPEG", "cat/b/c/x.png", "cat/b-/x.png", "cat/z.PNG", "cat/notes.txt",
                           "top.jpg", "dog/3.bmp", "dog/4.PPM", "dog/5.pgm", "dog/6.pbm", "dog/7.gif"}) {
    add(file);
  }
  const ImageListing listing = list_image_folder(root());
  CHECK_THAT(listing.class_names, ElementsAre("cat", "dog"));
  // sorted(os.walk()) compares paths as text, and '-' comes before '/'.
  CHECK_THAT(names(listing), ElementsAre("cat/z.PNG", "cat/b-/x.png", "cat/b/c/x.png", "dog/10.JPEG", "dog/2.jpg",
                                         "dog/3.bmp", "dog/4.PPM", "dog/5.pgm"));
  CHECK_THAT(listing.labels, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1));
  CHECK(listing.notice == "");
}

TEST_CASE_METHOD(FolderTest, "Folder: TIFF and WebP are listed where they can be read") {
  for (const char* file : {"a/1.tif", "a/2.TIFF", "a/3.webp", "a/4.jpg"}) add(file);
  std::vector<std::string> expected;
  if (can_read(ImageFormat::kTiff)) expected = {"a/1.tif", "a/2.TIFF"};
  if (can_read(ImageFormat::kWebP)) expected.push_back("a/3.webp");
  expected.push_back("a/4.jpg");
  const ImageListing listing = list_image_folder(root());
  CHECK(names(listing) == expected);
  CHECK(listing.notice.empty() == (expected.size() == 4));
}

TEST_CASE_METHOD(FolderTest,
                 "Folder: linked classes, folders and files are followed and stand where torchvision has them") {
  for (const char* file :
       {"store/more/2.jpg", "store/more/deep/3.jpg", "store/one.jpg", "root/a/1.jpg", "root/a/z.jpg"}) {
    add(file);
  }
  fs::create_directory_symlink(root() / "store/more", root() / "root/a/linked");
  fs::create_directory_symlink(root() / "store/more", root() / "root/a/again");
  fs::create_directory_symlink("../store", root() / "root/b");
  fs::create_symlink(root() / "store/one.jpg", root() / "root/a/5.jpg");
  const ImageListing listing = list_image_folder(root() / "root");
  CHECK_THAT(listing.class_names, ElementsAre("a", "b"));
  CHECK_THAT(names(listing), ElementsAre("root/a/1.jpg", "root/a/5.jpg", "root/a/z.jpg", "root/a/again/2.jpg",
                                         "root/a/again/deep/3.jpg", "root/a/linked/2.jpg", "root/a/linked/deep/3.jpg",
                                         "root/b/one.jpg", "root/b/more/2.jpg", "root/b/more/deep/3.jpg"));
  CHECK_THAT(listing.labels, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1, 1));
  CHECK(listing.notice == "");
}

TEST_CASE_METHOD(FolderTest, "Folder: links in a circle end and what is left out is said in one line") {
  for (const char* file : {"a/1.jpg", "a/in/2.jpg", "b/3.jpg"}) add(file);
  fs::create_directory_symlink(root() / "a", root() / "a/in/up");
  fs::create_directory_symlink(".", root() / "a/here");
  fs::create_symlink(root() / "none", root() / "a/8.jpg");
  fs::create_symlink("9.jpg", root() / "b/9.jpg");    // itself
  fs::create_symlink(root() / "none", root() / "c");  // a class that is not there
  REQUIRE(::mkfifo((root() / "b/pipe.png").c_str(), 0600) == 0);
  const test::CapturedStderr said;
  const ImageListing listing = list_image_folder(root());
  CHECK_THAT(names(listing), ElementsAre("a/1.jpg", "a/in/2.jpg", "b/3.jpg"));
  CHECK(listing.notice ==
        root().string() +
            ": 3 links skipped, such as a/8.jpg: its target does not exist; 2 links to folders skipped, such as "
            "a/here: it points to a folder that contains it; 1 file skipped, such as b/pipe.png: it "
            "is a pipe, socket or device");
  CHECK(said.text() == "ddprun: " + listing.notice + "\n");
}

TEST_CASE_METHOD(FolderTest, "Folder: a link to the root or to what contains it is left out") {
  for (const char* file : {"root/a/1.jpg", "root/b/2.jpg", "store/in/3.jpg"}) add(file);
  fs::create_directory_symlink("..", root() / "root/a/up");
  fs::create_directory_symlink(root(), root() / "root/all");
  fs::create_directory_symlink(root() / "store/in", root() / "root/b/store");
  fs::create_directory_symlink("..", root() / "store/in/store");
  const ImageListing listing = list_image_folder(root() / "root");
  CHECK_THAT(listing.class_names, ElementsAre("a", "b"));
  CHECK_THAT(names(listing), ElementsAre("root/a/1.jpg", "root/b/2.jpg", "root/b/store/3.jpg"));
  CHECK_THAT(listing.notice, ContainsSubstring("3 links to folders skipped, such as a/up: it points to"));
}

TEST_CASE_METHOD(FolderTest, "Folder: a name that is an ending alone is a picture's") {
  for (const char* file : {"a/.png", "a/.jpeg", "a/png"}) add(file);
  CHECK_THAT(names(list_image_folder(root())), ElementsAre("a/.jpeg", "a/.png"));
}

TEST_CASE_METHOD(FolderTest, "Folder: without classes or with an empty class is refused") {
  CHECK_THROWS_MATCHES(list_image_folder(root()), DataError, MessageMatches(ContainsSubstring("a folder per class")));
  CHECK_THROWS_AS(list_image_folder(root() / "none"), DataError);
  add("cat/x.jpg");
  fs::create_directories(root() / "dog");
  CHECK_THROWS_MATCHES(list_image_folder(root()), DataError,
                       MessageMatches(ContainsSubstring((root() / "dog").string())));
}

TEST_CASE_METHOD(FolderTest, "Folder: a split takes the same part of each class and depends on the seed alone") {
  for (int i = 0; i < 20; ++i) add("a/" + std::to_string(i) + ".jpg");
  for (int i = 0; i < 9; ++i) add("b/" + std::to_string(i) + ".jpg");
  const ImageListing listing = list_image_folder(root());
  const ImageSplit split = split_listing(listing, 0.25, 7);
  CHECK(std::count(split.validation.labels.begin(), split.validation.labels.end(), 0) == 5);
  CHECK(std::count(split.validation.labels.begin(), split.validation.labels.end(), 1) == 2);
  std::set<fs::path> all(split.train.files.begin(), split.train.files.end());
  all.insert(split.validation.files.begin(), split.validation.files.end());
  CHECK(all.size() == 29U);
  CHECK(split.train.files.size() == 22U);
  CHECK(std::is_sorted(split.train.labels.begin(), split.train.labels.end()));
  CHECK(split_listing(listing, 0.25, 7).validation.files == split.validation.files);
  CHECK(split_listing(listing, 0.25, 8).validation.files != split.validation.files);
  CHECK_THAT(split_listing(listing, 0, 7).validation.files, IsEmpty());
  CHECK_THAT(split_listing(listing, 1, 7).train.files, IsEmpty());
  CHECK_THROWS_AS(split_listing(listing, 1.5, 7), std::invalid_argument);
  CHECK_THROWS_AS(split_listing(listing, -0.1, 7), std::invalid_argument);
}

TEST_CASE_METHOD(FolderTest, "Folder: class indices are written as JSON and read back") {
  const fs::path file = root() / "class_indices.json";
  const std::vector<std::string> names = {"daisy", "\"quoted\"", "c", "d", "e", "f", "g", "h", "i", "j", "Größe"};
  write_class_indices(file, names);
  CHECK(read_class_indices(file) == names);
  CHECK_THROWS_MATCHES(write_class_indices("/dev/full", names), DataError,
                       MessageMatches(ContainsSubstring("/dev/full: cannot be written: No space left on device")));
  {  // too little room for all of it
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{20, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_THROWS_AS(write_class_indices(file, {"other", "names"}), DataError);
    setrlimit(RLIMIT_FSIZE, &before);
  }
  CHECK(read_class_indices(file) == names);
  CHECK(std::distance(fs::directory_iterator(root()), {}) == 1);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  write_class_indices(file, {"kept", "private"});
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  const fs::path link = root() / "link.json";
  fs::create_symlink(file, link);
  write_class_indices(link, {"of", "the link"});
  CHECK(fs::is_symlink(link));
  CHECK_THAT(read_class_indices(file), ElementsAre("of", "the link"));
  test::write_file(file, "{\n  \"1\": \"b\", \"0\": \"a\"\n}");
  CHECK_THAT(read_class_indices(file), ElementsAre("a", "b"));
  for (const char* bad : {"", "[]", "{\"0\": 1}", "{\"1\": \"b\"}", "{\"0\": \"a\", \"2\": \"b\"}", "{\"0\": "}) {
    test::write_file(file, bad);
    INFO(bad);
    CHECK_THROWS_MATCHES(read_class_indices(file), DataError, MessageMatches(ContainsSubstring(file.string())));
  }
}

}  // namespace
}  // namespace ddp
