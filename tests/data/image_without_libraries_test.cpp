// A build that found neither libtiff nor libwebp: their files are named, not passed over in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "data/error.h"
#include "data/image.h"
#include "data/image_folder_listing.h"
#include "data/image_format.h"
#include "tests/data/files.h"
#include "tests/data/picture_files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TEST(WithoutLibraries, a_picture_says_what_to_install) {
  EXPECT_FALSE(can_read(ImageFormat::kTiff));
  EXPECT_FALSE(can_read(ImageFormat::kWebP));
  const auto decode = [](const std::string& content) { decode_image({content.begin(), content.end()}, "picture"); };
  EXPECT_THAT([&] { decode(testing::tiff(testing::picture(3, 4))); },
              ThrowsMessage<DataError>(
                  AllOf(StartsWith("picture: a TIFF file"), HasSubstr("libtiff 4.5"), HasSubstr("libtiff-dev"))));
  EXPECT_THAT([&] { decode(testing::lossy_webp()); },
              ThrowsMessage<DataError>(AllOf(StartsWith("picture: a WebP file"), HasSubstr("libwebp-dev"))));
}

class ListingWithoutLibraries : public ::testing::Test {
 protected:
  ~ListingWithoutLibraries() override { ::unsetenv("RANK"); }
  void add(const fs::path& file) const {
    fs::create_directories((root() / file).parent_path());
    testing::write_file(root() / file, "");
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(ListingWithoutLibraries, a_folder_says_once_how_many_were_passed_over_and_shows_one) {
  for (const char* file : {"a/1.jpg", "a/2.webp", "a/3.webp", "b/1.png", "b/2.WEBP", "b/3.tif"}) add(file);
  for (const char* rank : {"", "0", "1"}) {
    *rank == '\0' ? ::unsetenv("RANK") : ::setenv("RANK", rank, 1);
    ::testing::internal::CaptureStderr();
    const ImageListing listing = list_image_folder(root());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(listing.files, SizeIs(2));
    EXPECT_THAT(listing.notice,
                AllOf(StartsWith(root().string() + ": "), HasSubstr("1 TIFF file passed over, such as b/3.tif"),
                      HasSubstr("3 WebP files passed over, such as a/2.webp"), HasSubstr("install libwebp-dev")));
    EXPECT_EQ(said, *rank == '1' ? "" : "ddprun: " + listing.notice + "\n");
  }
}

TEST_F(ListingWithoutLibraries, a_class_that_has_no_other_pictures_is_refused_with_the_cause) {
  for (const char* file : {"a/1.jpg", "b/1.webp", "b/2.webp"}) add(file);
  EXPECT_THAT([&] { list_image_folder(root()); },
              ThrowsMessage<DataError>(AllOf(StartsWith((root() / "b").string()), HasSubstr("2 WebP files passed over"),
                                             HasSubstr("libwebp-dev"))));
}

}  // namespace
}  // namespace ddp
