// Batches of pictures from files: sizes, augmentation, damaged files thrown or replaced, through the loader.
#include <algorithm>
#include <set>
#include <stdexcept>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/image.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/data/loader.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/data/picture_files.h"
#include "tests/data/pictures.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::ElementsAre;
using test::UnorderedElementsAre;

/// Two classes of three pictures, PNG and JPEG, of different sizes.
class ImageFolderTest {
 protected:
  ImageFolderTest() {
    for (int64_t i = 0; i < 3; ++i) {
      write("a/" + std::to_string(i) + ".png", test::png(test::picture(40 + i, 60), PNG_FORMAT_RGB));
      write("b/" + std::to_string(i) + ".jpg", test::jpeg(test::smooth_picture(50, 45 + i), 90));
    }
  }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((root() / name).parent_path());
    test::write_file(root() / name, content);
  }
  const fs::path& root() const { return folder_.path(); }
  std::vector<int64_t> targets(const Batch& batch) const {
    const int64_t* data = batch.target.const_data_ptr<int64_t>();
    return {data, data + batch.target.numel()};
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(ImageFolderTest, "ImageFolder: evaluation gives the normalized centre in every epoch") {
  const ImageFolder dataset(list_image_folder(root()), {.size = 24, .shorter_side = 32});
  CHECK(dataset.size() == 6);
  const std::vector<int64_t> indices = {5, 0};
  const Batch batch = dataset.get_batch(indices, 0);
  CHECK(batch.data.sizes() == at::IntArrayRef({2, 3, 24, 24}));
  CHECK_THAT(targets(batch), ElementsAre(1, 0));
  CHECK(batch.data.equal(dataset.get_batch(indices, 1).data));
  std::vector<float> expected(3 * 24 * 24);
  const auto table = normalization_table(ImageFolderOptions{}.normalization);
  normalize_image(resize_and_crop_centre(test::picture(40, 60), 32, 24), false, table, expected);
  const float* got = batch.data.const_data_ptr<float>() + expected.size();
  CHECK(std::equal(expected.begin(), expected.end(), got));
}

TEST_CASE_METHOD(ImageFolderTest, "ImageFolder: training pictures differ from epoch to epoch and not by workers") {
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
  CHECK(epochs.at(0).equal(epochs.at(2)));
  CHECK(epochs.at(1).equal(epochs.at(3)));
  CHECK_FALSE(epochs.at(0).equal(epochs.at(1)));
}

TEST_CASE_METHOD(ImageFolderTest, "ImageFolder: decoding only the rows of the crop changes nothing") {
  for (const bool augment : {false, true}) {
    ImageFolderOptions options{.size = 16, .augment = augment, .shorter_side = 20, .color_jitter = {.brightness = 0.2}};
    const ImageFolder whole(list_image_folder(root()), options);
    options.decoding = PartDecoding::kRows;
    const ImageFolder rows(list_image_folder(root()), options);
    options.decoding = PartDecoding::kReduced;
    const ImageFolder reduced(list_image_folder(root()), options);
    const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5};
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const Batch expected = whole.get_batch(all, epoch);
      CHECK(rows.get_batch(all, epoch).data.equal(expected.data));
      CHECK((reduced.get_batch(all, epoch).data - expected.data).abs().mean().item<double>() < 0.2);
    }
  }
}

TEST_CASE_METHOD(ImageFolderTest,
                 "ImageFolder: a damaged picture is named or another of the batch stands in its place") {
  write("a/1.png", "not a picture");
  const std::vector<int64_t> all = {3, 1, 4, 5};
  const ImageFolder strict(list_image_folder(root()), {.size = 8});
  CHECK_THROWS_MATCHES(strict.get_batch(all, 0), DataError,
                       MessageMatches(ContainsSubstring((root() / "a/1.png").string())));
  const ImageFolder lenient(list_image_folder(root()), {.size = 8, .skip_unreadable = true});
  const Batch batch = lenient.get_batch(all, 0);
  CHECK(batch.data.size(0) == 4);
  CHECK_THAT(targets(batch), ElementsAre(1, 1, 1, 1));
  CHECK(lenient.skipped() == 1);
  bool is_one_of_the_others = false;
  for (const int64_t other : {0, 2, 3}) is_one_of_the_others |= batch.data[1].equal(batch.data[other]);
  CHECK(is_one_of_the_others);
}

TEST_CASE_METHOD(ImageFolderTest, "ImageFolder: files that claim gigabytes are passed over and long strips are read") {
  const std::string bytes(100, 'x');
  write("a/1.png", test::TiffBytes{.tags = {{258, {8}}, {277, {65535}}}}.bytes(4096, 4096, bytes));
  write("b/1.jpg",
        test::TiffBytes{.tags = {{322, {16384}}, {323, {16384}}, {324, {8}}, {325, {100}}}}.bytes(4096, 4096, bytes));
  write("b/2.jpg", test::png(test::picture(3000, 1), PNG_FORMAT_RGB));
  const ImageFolder dataset(list_image_folder(root()), {.size = 224, .skip_unreadable = true});
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5};
  CHECK(dataset.get_batch(all, 0).data.size(0) == 6);
  CHECK(dataset.skipped() >= 2);
  const std::vector<int64_t> strip = {5};
  const ImageFolder strict(list_image_folder(root()), {.size = 224});
  CHECK(strict.get_batch(strip, 0).data.size(0) == 1);
}

TEST_CASE_METHOD(ImageFolderTest,
                 "ImageFolder: what stands in a damaged pictures place depends on epoch and index and is cut anew") {
  write("a/1.png", "not a picture");
  const std::vector<int64_t> share = {0, 2, 1, 3, 4, 5};
  const std::vector<int64_t> damaged = {1};
  const std::vector<int64_t> more = {4, 1};
  const ImageFolder plain(list_image_folder(root()), {.size = 8, .seed = 5, .skip_unreadable = true});
  const ImageFolder augmented(list_image_folder(root()),
                              {.size = 8, .augment = true, .seed = 5, .skip_unreadable = true});
  std::set<int64_t> taken;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const at::Tensor picture = plain.get_batch(damaged, epoch, share).data[0];
    CHECK(picture.equal(plain.get_batch(more, epoch, share).data[1]));
    for (const int64_t other : {0, 2, 3, 4, 5}) {
      const std::vector<int64_t> itself = {other};
      if (!picture.equal(plain.get_batch(itself, epoch).data[0])) continue;
      taken.insert(other);
      // The same picture may stand in the batch by itself: another part of it, not the same once more.
      CHECK_FALSE(augmented.get_batch(damaged, epoch, share).data.equal(augmented.get_batch(itself, epoch).data));
    }
  }
  CHECK_THAT(taken, UnorderedElementsAre(0, 2, 3, 4, 5));
}

TEST_CASE_METHOD(ImageFolderTest,
                 "ImageFolder: a share without any readable picture is refused instead of searched forever") {
  for (const char* name : {"a/0.png", "a/1.png", "a/2.png"}) write(name, "not a picture");
  const ImageFolder dataset(list_image_folder(root()), {.size = 8, .skip_unreadable = true});
  const std::vector<int64_t> damaged = {1, 0};
  CHECK_THROWS_MATCHES(
      dataset.get_batch(damaged, 0, std::vector<int64_t>{0, 1, 2}), DataError,
      MessageMatches(ContainsSubstring((root() / "a/1.png").string() + ": ") &&
                     ContainsSubstring("none of the 3 pictures") && ContainsSubstring("can be read either")));
  CHECK_THROWS_AS(dataset.get_batch(damaged, 0), DataError);
  CHECK(dataset.get_batch(damaged, 0, std::vector<int64_t>{0, 1, 2, 3}).target.size(0) == 2);
}

/// Batches of one rank's epoch, from the state if there is one: how many were given, and their pictures.
template <typename Load>
std::vector<Batch> epoch_of(const ImageFolder& dataset, DistributedSampler& sampler, int64_t batch_size, int workers) {
  Load loader(dataset, sampler, {.batch_size = batch_size, .workers = workers});
  std::vector<Batch> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

struct OnDevice : DeviceLoader<ImageFolder> {
  OnDevice(const ImageFolder& dataset, DistributedSampler& sampler, const LoaderOptions& options)
      : DeviceLoader<ImageFolder>(dataset, sampler, at::kCPU, options) {}
};

class DamagedFolder : public ImageFolderTest {
 protected:
  DamagedFolder() {
    for (const char* name : {"a/0.png", "a/1.png", "a/2.png", "b/1.jpg"}) write(name, "not a picture");
  }
};

TEST_CASE_METHOD(DamagedFolder, "DamagedFolder: ranks get as many full batches as if nothing were damaged") {
  const ImageFolder dataset(list_image_folder(root()), {.size = 8, .augment = true, .skip_unreadable = true});
  for (const int64_t batch_size : {1, 2, 3}) {
    for (int rank = 0; rank < 2; ++rank) {
      DistributedSampler sampler(dataset.size(), {.num_replicas = 2, .rank = rank, .seed = 1});
      const auto batches = epoch_of<Loader<ImageFolder>>(dataset, sampler, batch_size, 2);
      CHECK(batches.size() == static_cast<size_t>((3 + batch_size - 1) / batch_size));
      int64_t given = 0;
      for (const Batch& batch : batches) {
        CHECK(batch.data.size(0) == batch.target.size(0));
        CHECK_FALSE(batch.data.isnan().any().item<bool>());
        given += batch.target.numel();
      }
      CHECK(given == 3);
    }
  }
}

TEST_CASE_METHOD(DamagedFolder,
                 "DamagedFolder: replacements come from the rank's own share whatever loader and workers") {
  const ImageFolder dataset(list_image_folder(root()), {.size = 8, .skip_unreadable = true});
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    DistributedSampler sampler(dataset.size(), {.num_replicas = 2, .rank = 0, .seed = 4});
    sampler.set_epoch(epoch);
    const std::vector<int64_t> share = sampler.indices();
    std::vector<at::Tensor> readable;
    for (const int64_t index : share) {
      if (index == 3 || index == 5) readable.push_back(dataset.get_batch(std::vector<int64_t>{index}, epoch).data[0]);
    }
    if (readable.empty()) continue;
    const auto expected = epoch_of<Loader<ImageFolder>>(dataset, sampler, 1, 0);
    const auto on_device = epoch_of<OnDevice>(dataset, sampler, 1, 2);
    REQUIRE(on_device.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(on_device[i].data.equal(expected[i].data));
      const auto is_it = [&](const at::Tensor& picture) { return picture.equal(expected[i].data[0]); };
      CHECK(std::any_of(readable.begin(), readable.end(), is_it));
    }
  }
}

TEST_CASE_METHOD(DamagedFolder, "DamagedFolder: a resumed epoch has the same replacements") {
  const ImageFolder dataset(list_image_folder(root()), {.size = 8, .augment = true, .skip_unreadable = true});
  DistributedSampler sampler(dataset.size(), {.num_replicas = 1, .rank = 0, .seed = 2});
  sampler.set_epoch(3);
  const auto whole = epoch_of<Loader<ImageFolder>>(dataset, sampler, 1, 0);
  REQUIRE(whole.size() == 6U);
  for (int64_t stop = 1; stop < 6; ++stop) {
    DistributedSampler resumed(dataset.size(), {.num_replicas = 1, .rank = 0});
    resumed.load_state({.seed = 2, .epoch = 3, .consumed = stop, .length = dataset.size()});
    const auto rest = epoch_of<Loader<ImageFolder>>(dataset, resumed, 1, 2);
    REQUIRE(rest.size() == static_cast<size_t>(6 - stop));
    for (size_t i = 0; i < rest.size(); ++i) {
      const Batch& expected = whole[i + static_cast<size_t>(stop)];
      CHECK(rest[i].data.equal(expected.data));
      CHECK(rest[i].target.equal(expected.target));
    }
  }
}

TEST_CASE_METHOD(ImageFolderTest, "ImageFolder: options and indices that do not fit are refused") {
  CHECK_THROWS_AS(ImageFolder(list_image_folder(root()), {.size = 0}), std::invalid_argument);
  CHECK_THROWS_AS(ImageFolder(list_image_folder(root()), {.size = 300}), std::invalid_argument);
  const ImageFolder dataset(list_image_folder(root()), {.size = 8});
  CHECK_THROWS_AS(dataset.get_batch(std::vector<int64_t>{6}, 0), std::out_of_range);
  CHECK_THROWS_AS(dataset.get_batch(std::vector<int64_t>{-1}, 0), std::out_of_range);
}

}  // namespace
}  // namespace ddp
