// Datasets over files and tensors: CIFAR-100, MNIST, volumes, tensors in memory, synthetic pictures.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "data/augmented_images.h"
#include "data/cifar100.h"
#include "data/device_loader.h"
#include "data/error.h"
#include "data/mnist.h"
#include "data/synthetic_images.h"
#include "data/tensor_dataset.h"
#include "data/volumes.h"
#include "samplers/distributed_sampler.h"
#include "samplers/sequential_sampler.h"
#include "tests/data/files.h"
#include "tests/data/formats.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Indices = std::vector<int64_t>;

std::vector<int64_t> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

class Datasets : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    testing::write_file(folder_.path() / name, content);
    return folder_.path() / name;
  }
  const std::filesystem::path& dir() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(Datasets, cifar100_has_fine_and_coarse_labels) {
  std::string content;
  for (int image = 0; image < 3; ++image) {
    content += {static_cast<char>(image), static_cast<char>(90 + image)};
    for (int64_t i = 0; i < 3072; ++i) content.push_back(static_cast<char>(testing::pixel(image, i)));
  }
  file("train.bin", content);
  const Cifar100 fine(dir(), Cifar100::Split::kTrain);
  EXPECT_THAT(values(fine.labels()), ElementsAre(90, 91, 92));
  EXPECT_TRUE(fine.class_names().empty());
  const Cifar100 coarse(dir(), Cifar100::Split::kTrain, {}, Cifar100::Labels::kCoarse);
  const Batch batch = coarse.get_batch(Indices{2, 0});
  EXPECT_THAT(values(batch.target), ElementsAre(2, 0));
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 3, 32, 32}));
  EXPECT_TRUE(batch.data[0].mul(255).round().to(at::kByte).equal(coarse.images()[2]));
  EXPECT_THROW(Cifar100(dir(), Cifar100::Split::kTest), DataError);
}

TEST_F(Datasets, mnist_reads_a_split_with_one_channel) {
  file("t10k-images-idx3-ubyte", testing::idx({2, 2, 3}, std::string("\0\x33\x66\x99\xcc\xff\1\2\3\4\5\6", 12)));
  file("t10k-labels-idx1-ubyte", testing::idx({2}, std::string("\7\0", 2)));
  const Mnist test(dir(), Mnist::Split::kTest, {.mean = {0.2F}, .stddev = {0.4F}});
  const Batch batch = test.get_batch(Indices{0});
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({1, 1, 2, 3}));
  EXPECT_THAT(values(batch.target), ElementsAre(7));
  const at::Tensor expected = (at::arange(6, at::kFloat) * 51 / 255 - 0.2F) / 0.4F;
  EXPECT_TRUE(at::allclose(batch.data.flatten(), expected, 1e-6, 1e-6));
  const AugmentedImages augmented(test, {.padding = 1, .seed = 3});
  EXPECT_EQ(augmented.get_batch(Indices{0, 1}, 0).data.sizes(), at::IntArrayRef({2, 1, 2, 3}));
}

TEST_F(Datasets, mnist_refuses_labels_that_do_not_fit) {
  file("train-images-idx3-ubyte", testing::idx({2, 1, 1}, "ab"));
  file("train-labels-idx1-ubyte", testing::idx({1}, std::string(1, '\0')));
  EXPECT_THAT([&] { Mnist(dir(), Mnist::Split::kTrain); },
              ThrowsMessage<DataError>(HasSubstr("expected a label for each of 2 images, got 1")));
  file("train-labels-idx1-ubyte", testing::idx({2}, std::string("\1\x0a", 2)));
  EXPECT_THAT([&] { Mnist(dir(), Mnist::Split::kTrain); },
              ThrowsMessage<DataError>(HasSubstr("label 10 of image 1, expected 0 to 9")));
}

TEST(ByteImagesTest, refuses_other_tensors_and_indices) {
  const at::Tensor images = at::zeros({2, 3, 4, 4}, at::kByte);
  const at::Tensor labels = at::zeros({2}, at::kLong);
  EXPECT_THROW(ByteImages(images.to(at::kFloat), labels), std::invalid_argument);
  EXPECT_THROW(ByteImages(images, at::zeros({3}, at::kLong)), std::invalid_argument);
  EXPECT_THROW(ByteImages(images.transpose(2, 3).slice(2, 0, 3), labels), std::invalid_argument);
  EXPECT_THROW(ByteImages(images, labels, {}, {}, "mine").get_batch(Indices{2}), std::out_of_range);
}

TEST(TensorDatasetTest, gathers_rows) {
  const at::Tensor data = at::arange(12, at::kFloat).view({4, 3});
  const TensorDataset dataset(data, at::arange(4));
  const Batch batch = dataset.get_batch(Indices{3, 1, 3});
  EXPECT_TRUE(batch.data.equal(at::stack({data[3], data[1], data[3]})));
  EXPECT_THAT(values(batch.target), ElementsAre(3, 1, 3));
  EXPECT_THROW(dataset.get_batch(Indices{4}), std::out_of_range);
  EXPECT_THROW(TensorDataset(data, at::arange(3)), std::invalid_argument);
}

TEST(SyntheticImagesTest, depend_on_seed_and_index_alone_and_have_unit_variance) {
  const SyntheticImages images({.size = 200, .channels = 1, .height = 16, .width = 16, .classes = 4, .seed = 5});
  Indices all(200);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = images.get_batch(all);
  EXPECT_TRUE(images.get_batch(Indices{17}).data[0].equal(batch.data[17]));
  EXPECT_EQ(std::get<0>(at::_unique(batch.target)).numel(), 4);
  EXPECT_NEAR(batch.data.var({1, 2, 3}, /*unbiased=*/false).mean().item<double>(), 1, 0.02);
  EXPECT_FALSE(SyntheticImages({.size = 200, .channels = 1, .height = 16, .width = 16, .classes = 4, .seed = 6})
                   .get_batch(Indices{17})
                   .data.equal(batch.data.slice(0, 17, 18)));
  EXPECT_THROW(SyntheticImages({.classes = 0}), std::invalid_argument);
}

class VolumesTest : public Datasets {
 protected:
  // x fastest: voxel (z, y, x) is 100 z + 10 y + x; labels are z.
  void volume(const std::string& name, int16_t depth, int16_t height, int16_t width) const {
    std::vector<float> voxels;
    std::vector<uint8_t> labels;
    for (int z = 0; z < depth; ++z) {
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          voxels.push_back(static_cast<float>(100 * z + 10 * y + x));
          labels.push_back(static_cast<uint8_t>(z));
        }
      }
    }
    const testing::NiftiFile nifti{.dimensions = {3, width, height, depth, 1, 1, 1, 1}, .spacing = {1, 1, 1, 1}};
    file("images/" + name + "_0000.nii", nifti.bytes<float>(16, voxels));
    file("labels/" + name + ".nii", nifti.bytes<uint8_t>(2, labels));
  }
  std::vector<VolumePair> pairs() const { return list_volume_pairs(dir() / "images", dir() / "labels"); }
};

TEST_F(VolumesTest, whole_volumes_with_their_labels) {
  volume("b", 2, 3, 4);
  volume("a", 2, 3, 4);
  ASSERT_EQ(pairs().size(), 2U);
  EXPECT_EQ(pairs()[0].image.filename(), "a_0000.nii");
  const Batch batch = Volumes(pairs(), {.normalize = false, .classes = 2}).get_batch(Indices{1, 0}, 0);
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({2, 1, 2, 3, 4}));
  EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({2, 2, 3, 4}));
  EXPECT_EQ((batch.data[0][0][1][2][3].item<float>()), 123);
  EXPECT_EQ((batch.target[0][1][0][0].item<int64_t>()), 1);
  const at::Tensor normalized = Volumes(pairs()).get_batch(Indices{0}, 0).data;
  EXPECT_NEAR(normalized.mean().item<double>(), 0, 1e-5);
  EXPECT_NEAR(normalized.std(/*unbiased=*/false).item<double>(), 1, 1e-5);
}

TEST_F(VolumesTest, crops_keep_voxels_and_labels_together_and_depend_on_the_epoch) {
  volume("a", 6, 7, 8);
  const Volumes volumes(pairs(), {.size = {3, 4, 9}, .augment = true, .normalize = false, .seed = 2});
  bool differs = false;
  const Batch first = volumes.get_batch(Indices{0}, 0);
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const Batch batch = volumes.get_batch(Indices{0}, epoch);
    ASSERT_EQ(batch.data.sizes(), at::IntArrayRef({1, 1, 3, 4, 9}));
    EXPECT_TRUE(batch.data.equal(volumes.get_batch(Indices{0}, epoch).data));
    differs = differs || !batch.data.equal(first.data);
    // Of the voxels inside, hundreds are the label; one column of nine is padding.
    const at::Tensor hundreds = batch.data.squeeze(1).div(100).floor().to(at::kLong);
    EXPECT_TRUE(hundreds.equal(batch.target));
    const at::Tensor columns = batch.data.abs().sum(at::IntArrayRef({0, 1, 2, 3})).gt(0);
    EXPECT_EQ(columns.sum().item<int64_t>(), 8);
  }
  EXPECT_TRUE(differs);
}

TEST_F(VolumesTest, errors_name_the_file) {
  volume("a", 2, 3, 4);
  volume("b", 2, 3, 5);
  EXPECT_THAT(
      [&] {
        Volumes(pairs()).get_batch(Indices{0, 1}, 0);
      },
      ThrowsMessage<DataError>(AllOf(HasSubstr("b_0000.nii"), HasSubstr("2 x 3 x 5"), HasSubstr("size"))));
  EXPECT_THAT([&] { Volumes(pairs(), {.classes = 1}).get_batch(Indices{0}, 0); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("labels/a.nii"), HasSubstr("expected a whole number from 0"))));
  std::filesystem::remove(dir() / "labels/b.nii");
  EXPECT_THAT([&] { pairs(); }, ThrowsMessage<DataError>(HasSubstr("b_0000.nii: no labels")));
  EXPECT_THROW(list_volume_pairs(dir() / "labels", dir() / "none"), DataError);
  EXPECT_THROW(list_volume_pairs(dir() / "none", dir() / "none"), DataError);
  EXPECT_THROW(Volumes({}, {.size = {0, 4, 4}}), std::invalid_argument);
}

TEST(DeviceLoaderTest, on_the_cpu_it_gives_the_loaders_batches_and_states) {
  const TensorDataset dataset(at::arange(20, at::kFloat), at::arange(20));
  for (const int workers : {0, 2}) {
    DistributedSampler sampler(20, {.num_replicas = 2, .rank = 1, .seed = 1});
    DeviceLoader loader(dataset, sampler, at::kCPU, {.batch_size = 3, .workers = workers});
    EXPECT_EQ(loader.size(), 4);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      Indices seen;
      for (auto& batch : loader) {
        for (const int64_t index : values(batch.target)) seen.push_back(index);
        EXPECT_EQ(loader.state().consumed, 2 * static_cast<int64_t>(seen.size()));
      }
      EXPECT_EQ(seen, sampler.indices());
    }
  }
}

struct Broken {
  Batch get_batch(std::span<const int64_t> indices) const {
    for (const int64_t index : indices) {
      if (index == 6) throw std::runtime_error("unreadable");
    }
    return {.data = at::zeros({1}), .target = at::zeros({1}, at::kLong)};
  }
};

TEST(DeviceLoaderTest, what_a_dataset_throws_comes_in_the_batchs_place) {
  const Broken dataset;
  SequentialSampler sampler(20);
  DeviceLoader loader(dataset, sampler, at::kCPU, {.batch_size = 4, .workers = 1});
  for (int pass = 0; pass < 2; ++pass) {
    int seen = 0;
    EXPECT_THAT(
        [&] {
          for (auto& batch : loader) seen += batch.data.defined() ? 1 : 0;
        },
        ThrowsMessage<LoaderError>("sample 6: unreadable"));
    EXPECT_EQ(seen, 1);
  }
}

}  // namespace
}  // namespace ddp
