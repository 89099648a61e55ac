// A build that found neither libtiff nor libwebp: their files are named, not passed over in silence.

#include <cstdlib>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

#include "data/formats/image_format.h"
#include "tests/data/picture_files.h"
#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::SizeIs;
using Catch::Matchers::StartsWith;

TEST_CASE("WithoutLibraries: a picture says what to install") {
  CHECK_FALSE(can_read(ImageFormat::kTiff));
  CHECK_FALSE(can_read(ImageFormat::kWebP));
  const auto decode = [](const std::string& content) { decode_image({content.begin(), content.end()}, "picture"); };
  CHECK_THROWS_MATCHES(decode(test::tiff(test::picture(3, 4))), DataError,
                       MessageMatches(StartsWith("picture: a TIFF file") && ContainsSubstring("libtiff 4.5") &&
                                      ContainsSubstring("libtiff-dev")));
  CHECK_THROWS_MATCHES(decode(test::lossy_webp()), DataError,
                       MessageMatches(StartsWith("picture: a WebP file") && ContainsSubstring("libwebp-dev")));
}

class ListingWithoutLibraries {
 protected:
  ~ListingWithoutLibraries() { ::unsetenv("RANK"); }
  void add(const fs::path& file) const {
    fs::create_directories((root() / file).parent_path());
    test::write_file(root() / file, "");
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(ListingWithoutLibraries,
                 "ListingWithoutLibraries: a folder says once how many were passed over and shows one") {
  for (const char* file : {"a/1.jpg", "a/2.webp", "a/3.webp", "b/1.png", "b/2.WEBP", "b/3.tif"}) add(file);
  for (const char* rank : {"", "0", "1"}) {
    *rank == '\0' ? ::unsetenv("RANK") : ::setenv("RANK", rank, 1);
    const test::CapturedStderr said;
    const ImageListing listing = list_image_folder(root());
    CHECK_THAT(listing.files, SizeIs(2));
    CHECK_THAT(listing.notice, StartsWith(root().string() + ": ") &&
                                   ContainsSubstring("1 TIFF file skipped, such as b/3.tif") &&
                                   ContainsSubstring("3 WebP files skipped, such as a/2.webp") &&
                                   ContainsSubstring("install libwebp-dev"));
    CHECK(said.text() == (*rank == '1' ? "" : "ddprun: " + listing.notice + "\n"));
  }
}

TEST_CASE_METHOD(ListingWithoutLibraries,
                 "ListingWithoutLibraries: a class that has no other pictures is refused with the cause") {
  for (const char* file : {"a/1.jpg", "b/1.webp", "b/2.webp"}) add(file);
  CHECK_THROWS_MATCHES(
      list_image_folder(root()), DataError,
      MessageMatches(StartsWith((root() / "b").string()) && ContainsSubstring("2 WebP files skipped") &&
                     ContainsSubstring("libwebp-dev")));
}

}  // namespace
}  // namespace ddp
