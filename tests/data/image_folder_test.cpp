// Batches of pictures from files: sizes, augmentation, damaged files thrown or skipped, through the loader.
#include "data/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "data/error.h"
#include "data/image_transform.h"
#include "data/loader.h"
#include "samplers/sequential_sampler.h"
#include "tests/data/files.h"
#include "tests/data/pictures.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Two classes of three pictures, PNG and JPEG, of different sizes.
class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    for (int64_t i = 0; i < 3; ++i) {
      write("a/" + std::to_string(i) + ".png", testing::png(testing::picture(40 + i, 60), PNG_FORMAT_RGB));
      write("b/" + std::to_string(i) + ".jpg", testing::jpeg(testing::smooth_picture(50, 45 + i), 90));
    }
  }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((root() / name).parent_path());
    testing::write_file(root() / name, content);
  }
  const fs::path& root() const { return folder_.path(); }
  std::vector<int64_t> targets(const Batch& batch) const {
    const int64_t* data = batch.target.const_data_ptr<int64_t>();
    return {data, data + batch.target.numel()};
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(ImageFolderTest, evaluation_gives_the_normalized_centre_in_every_epoch) {
  const ImageFolder dataset(list_image_folder(root()), {.size = 24, .shorter_side = 32});
  EXPECT_EQ(dataset.size(), 6);
  const std::vector<int64_t> indices = {5, 0};
  const Batch batch = dataset.get_batch(indices, 0);
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3, 24, 24}));
  EXPECT_THAT(targets(batch), ElementsAre(1, 0));
  EXPECT_TRUE(batch.data.equal(dataset.get_batch(indices, 1).data));
  std::vector<float> expected(3 * 24 * 24);
  const auto table = normalization_table(ImageFolderOptions{}.normalization);
  normalize_image(resize_and_crop_centre(testing::picture(40, 60), 32, 24), false, table, expected);
  const float* got = batch.data.const_data_ptr<float>() + expected.size();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got));
}

TEST_F(ImageFolderTest, training_pictures_differ_from_epoch_to_epoch_and_not_by_workers) {
  const ImageFolder dataset(list_image_folder(root()), {.size = 16, .augment = true, .seed = 3});
  SequentialSampler sampler(dataset.size());
  std::vector<at::Tensor> epochs;
  for (const int workers : {0, 3}) {
    Loader loader(dataset, sampler, {.batch_size = 6, .workers = workers});
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      sampler.set_epoch(epoch);
      for (auto& batch : loader) epochs.push_back(batch.data);
    }
  }
  EXPECT_TRUE(epochs.at(0).equal(epochs.at(2)));
  EXPECT_TRUE(epochs.at(1).equal(epochs.at(3)));
  EXPECT_FALSE(epochs.at(0).equal(epochs.at(1)));
}

TEST_F(ImageFolderTest, a_damaged_picture_is_named_or_skipped_and_counted) {
  write("a/1.png", "not a picture");
  const std::vector<int64_t> all = {0, 1, 2, 3};
  const ImageFolder strict(list_image_folder(root()), {.size = 8});
  EXPECT_THAT([&] { strict.get_batch(all, 0); }, ThrowsMessage<DataError>(HasSubstr((root() / "a/1.png").string())));
  const ImageFolder lenient(list_image_folder(root()), {.size = 8, .skip_unreadable = true});
  const Batch batch = lenient.get_batch(all, 0);
  EXPECT_EQ(batch.data.size(0), 3);
  EXPECT_THAT(targets(batch), ElementsAre(0, 0, 1));
  EXPECT_EQ(lenient.skipped(), 1);
  EXPECT_EQ(lenient.get_batch(std::vector<int64_t>{1}, 0).data.size(0), 0);
  EXPECT_EQ(lenient.skipped(), 2);
}

TEST_F(ImageFolderTest, options_and_indices_that_do_not_fit_are_refused) {
  EXPECT_THROW(ImageFolder(list_image_folder(root()), {.size = 0}), std::invalid_argument);
  EXPECT_THROW(ImageFolder(list_image_folder(root()), {.size = 300}), std::invalid_argument);
  const ImageFolder dataset(list_image_folder(root()), {.size = 8});
  EXPECT_THROW(dataset.get_batch(std::vector<int64_t>{6}, 0), std::out_of_range);
  EXPECT_THROW(dataset.get_batch(std::vector<int64_t>{-1}, 0), std::out_of_range);
}

}  // namespace
}  // namespace ddp
