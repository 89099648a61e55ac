// Datasets over files and tensors: CIFAR-100, MNIST, volumes, tensors in memory, synthetic pictures.
#include <ATen/ATen.h>

#include <numeric>
#include <stdexcept>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/dataset_wrappers.h>
#include <ddprun/data/datasets.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/data/cifar10_records.h"
#include "tests/data/formats.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinAbs;
using test::ElementsAre;
using Indices = std::vector<int64_t>;

std::vector<int64_t> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

class Datasets {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    test::write_file(folder_.path() / name, content);
    return folder_.path() / name;
  }
  const std::filesystem::path& dir() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(Datasets, "Datasets: CIFAR-100 has fine and coarse labels") {
  std::string content;
  for (int image = 0; image < 3; ++image) {
    content += {static_cast<char>(image), static_cast<char>(90 + image)};
    for (int64_t i = 0; i < 3072; ++i) content.push_back(static_cast<char>(test::pixel(image, i)));
  }
  file("train.bin", content);
  const Cifar100 fine(dir(), Cifar100::Split::kTrain);
  CHECK_THAT(values(fine.labels()), ElementsAre(90, 91, 92));
  CHECK(fine.class_names().empty());
  const Cifar100 coarse(dir(), Cifar100::Split::kTrain, {}, Cifar100::Labels::kCoarse);
  const Batch batch = coarse.get_batch(Indices{2, 0});
  CHECK_THAT(values(batch.target), ElementsAre(2, 0));
  CHECK(batch.data.sizes() == at::IntArrayRef({2, 3, 32, 32}));
  CHECK(batch.data[0].mul(255).round().to(at::kByte).equal(coarse.images()[2]));
  CHECK_THROWS_AS(Cifar100(dir(), Cifar100::Split::kTest), DataError);
}

TEST_CASE_METHOD(Datasets, "Datasets: MNIST reads a split with one channel") {
  file("t10k-images-idx3-ubyte", test::idx({2, 2, 3}, std::string("\0\x33\x66\x99\xcc\xff\1\2\3\4\5\6", 12)));
  file("t10k-labels-idx1-ubyte", test::idx({2}, std::string("\7\0", 2)));
  const Mnist test(dir(), Mnist::Split::kTest, {.mean = {0.2F}, .stddev = {0.4F}});
  const Batch batch = test.get_batch(Indices{0});
  CHECK(batch.data.sizes() == at::IntArrayRef({1, 1, 2, 3}));
  CHECK_THAT(values(batch.target), ElementsAre(7));
  const at::Tensor expected = (at::arange(6, at::kFloat) * 51 / 255 - 0.2F) / 0.4F;
  CHECK(at::allclose(batch.data.flatten(), expected, 1e-6, 1e-6));
  const AugmentedImages augmented(test, {.padding = 1, .seed = 3});
  CHECK(augmented.get_batch(Indices{0, 1}, 0).data.sizes() == at::IntArrayRef({2, 1, 2, 3}));
}

TEST_CASE_METHOD(Datasets, "Datasets: MNIST refuses labels that do not fit") {
  file("train-images-idx3-ubyte", test::idx({2, 1, 1}, "ab"));
  file("train-labels-idx1-ubyte", test::idx({1}, std::string(1, '\0')));
  CHECK_THROWS_MATCHES(Mnist(dir(), Mnist::Split::kTrain), DataError,
                       MessageMatches(ContainsSubstring("expected a label for each of 2 images, got 1")));
  file("train-labels-idx1-ubyte", test::idx({2}, std::string("\1\x0a", 2)));
  CHECK_THROWS_MATCHES(Mnist(dir(), Mnist::Split::kTrain), DataError,
                       MessageMatches(ContainsSubstring("label 10 of image 1, expected 0 to 9")));
}

TEST_CASE("ByteImages: refuses other tensors and indices") {
  const at::Tensor images = at::zeros({2, 3, 4, 4}, at::kByte);
  const at::Tensor labels = at::zeros({2}, at::kLong);
  CHECK_THROWS_AS(ByteImages(images.to(at::kFloat), labels), std::invalid_argument);
  CHECK_THROWS_AS(ByteImages(images, at::zeros({3}, at::kLong)), std::invalid_argument);
  CHECK_THROWS_AS(ByteImages(images.transpose(2, 3).slice(2, 0, 3), labels), std::invalid_argument);
  CHECK_THROWS_AS(ByteImages(images, labels, {}, {}, "mine").get_batch(Indices{2}), std::out_of_range);
}

TEST_CASE("TensorDataset: gathers rows") {
  const at::Tensor data = at::arange(12, at::kFloat).view({4, 3});
  const TensorDataset dataset(data, at::arange(4));
  const Batch batch = dataset.get_batch(Indices{3, 1, 3});
  CHECK(batch.data.equal(at::stack({data[3], data[1], data[3]})));
  CHECK_THAT(values(batch.target), ElementsAre(3, 1, 3));
  CHECK_THROWS_AS(dataset.get_batch(Indices{4}), std::out_of_range);
  CHECK_THROWS_AS(TensorDataset(data, at::arange(3)), std::invalid_argument);
}

TEST_CASE("SyntheticImages: depend on seed and index alone and have unit variance") {
  const SyntheticImages images({.size = 200, .channels = 1, .height = 16, .width = 16, .classes = 4, .seed = 5});
  Indices all(200);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = images.get_batch(all);
  CHECK(images.get_batch(Indices{17}).data[0].equal(batch.data[17]));
  CHECK(std::get<0>(at::_unique(batch.target)).numel() == 4);
  CHECK_THAT(batch.data.var({1, 2, 3}, /*unbiased=*/false).mean().item<double>(), WithinAbs(1, 0.02));
  CHECK_FALSE(SyntheticImages({.size = 200, .channels = 1, .height = 16, .width = 16, .classes = 4, .seed = 6})
                  .get_batch(Indices{17})
                  .data.equal(batch.data.slice(0, 17, 18)));
  CHECK_THROWS_AS(SyntheticImages({.classes = 0}), std::invalid_argument);
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
    const test::NiftiFile nifti{.dimensions = {3, width, height, depth, 1, 1, 1, 1}, .spacing = {1, 1, 1, 1}};
    file("images/" + name + "_0000.nii", nifti.bytes<float>(16, voxels));
    file("labels/" + name + ".nii", nifti.bytes<uint8_t>(2, labels));
  }
  std::vector<VolumePair> pairs() const { return list_volume_pairs(dir() / "images", dir() / "labels"); }
};

TEST_CASE_METHOD(VolumesTest, "Volumes: whole volumes with their labels") {
  volume("b", 2, 3, 4);
  volume("a", 2, 3, 4);
  REQUIRE(pairs().size() == 2U);
  CHECK(pairs()[0].image.filename() == "a_0000.nii");
  const Batch batch = Volumes(pairs(), {.normalize = false, .classes = 2}).get_batch(Indices{1, 0}, 0);
  CHECK(batch.data.sizes() == at::IntArrayRef({2, 1, 2, 3, 4}));
  CHECK(batch.target.sizes() == at::IntArrayRef({2, 2, 3, 4}));
  CHECK(batch.data[0][0][1][2][3].item<float>() == 123);
  CHECK(batch.target[0][1][0][0].item<int64_t>() == 1);
  const at::Tensor normalized = Volumes(pairs()).get_batch(Indices{0}, 0).data;
  CHECK_THAT(normalized.mean().item<double>(), WithinAbs(0, 1e-5));
  CHECK_THAT(normalized.std(/*unbiased=*/false).item<double>(), WithinAbs(1, 1e-5));
}

TEST_CASE_METHOD(VolumesTest, "Volumes: crops keep voxels and labels together and depend on the epoch") {
  volume("a", 6, 7, 8);
  const Volumes volumes(pairs(), {.size = {3, 4, 9}, .augment = true, .normalize = false, .seed = 2});
  bool differs = false;
  const Batch first = volumes.get_batch(Indices{0}, 0);
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const Batch batch = volumes.get_batch(Indices{0}, epoch);
    REQUIRE(batch.data.sizes() == at::IntArrayRef({1, 1, 3, 4, 9}));
    CHECK(batch.data.equal(volumes.get_batch(Indices{0}, epoch).data));
    differs = differs || !batch.data.equal(first.data);
    // Of the voxels inside, hundreds are the label; one column of nine is padding.
    const at::Tensor hundreds = batch.data.squeeze(1).div(100).floor().to(at::kLong);
    CHECK(hundreds.equal(batch.target));
    const at::Tensor columns = batch.data.abs().sum(at::IntArrayRef({0, 1, 2, 3})).gt(0);
    CHECK(columns.sum().item<int64_t>() == 8);
  }
  CHECK(differs);
}

TEST_CASE_METHOD(VolumesTest, "Volumes: a series is the channels of a volume, each normalized by itself") {
  volume("a", 2, 3, 4);
  std::vector<float> voxels(72);
  for (size_t i = 0; i < voxels.size(); ++i) voxels[i] = static_cast<float>(i < 24 ? i : 1000 * i);
  const test::NiftiFile nifti{.dimensions = {4, 4, 3, 2, 3, 1, 1, 1}, .spacing = {1, 1, 1, 1}};
  file("images/a_0000.nii", nifti.bytes<float>(16, voxels));
  const Batch raw = Volumes(pairs(), {.channels = 3, .normalize = false}).get_batch(Indices{0}, 0);
  CHECK(raw.data.sizes() == at::IntArrayRef({1, 3, 2, 3, 4}));
  CHECK(raw.target.sizes() == at::IntArrayRef({1, 2, 3, 4}));
  for (int64_t i = 0; i < 72; ++i) CHECK(raw.data.view(-1)[i].item<float>() == voxels[static_cast<size_t>(i)]);
  const at::Tensor normalized = Volumes(pairs(), {.channels = 3}).get_batch(Indices{0}, 0).data;
  for (int64_t c = 0; c < 3; ++c) {
    CHECK_THAT(normalized[0][c].mean().item<double>(), WithinAbs(0, 1e-5));
    CHECK_THAT(normalized[0][c].std(/*unbiased=*/false).item<double>(), WithinAbs(1, 1e-5));
  }
  CHECK_THROWS_MATCHES(Volumes(pairs(), {.channels = 2}).get_batch(Indices{0}, 0), DataError,
                       MessageMatches(ContainsSubstring("a_0000.nii: expected the 2 volumes")));
  CHECK_THROWS_AS(Volumes(pairs()).get_batch(Indices{0}, 0), DataError);
  CHECK_THROWS_AS(Volumes(pairs(), {.channels = 0}), std::invalid_argument);
}

TEST_CASE_METHOD(VolumesTest, "Volumes: errors name the file") {
  volume("a", 2, 3, 4);
  volume("b", 2, 3, 5);
  CHECK_THROWS_MATCHES(
      Volumes(pairs()).get_batch(Indices{0, 1}, 0), DataError,
      MessageMatches(ContainsSubstring("b_0000.nii") && ContainsSubstring("2 x 3 x 5") && ContainsSubstring("size")));
  CHECK_THROWS_MATCHES(
      Volumes(pairs(), {.classes = 1}).get_batch(Indices{0}, 0), DataError,
      MessageMatches(ContainsSubstring("labels/a.nii") && ContainsSubstring("expected a whole number from 0")));
  std::filesystem::remove(dir() / "labels/b.nii");
  CHECK_THROWS_MATCHES(pairs(), DataError, MessageMatches(ContainsSubstring("b_0000.nii: no labels")));
  CHECK_THROWS_AS(list_volume_pairs(dir() / "labels", dir() / "none"), DataError);
  CHECK_THROWS_AS(list_volume_pairs(dir() / "none", dir() / "none"), DataError);
  CHECK_THROWS_AS(Volumes({}, {.size = {0, 4, 4}}), std::invalid_argument);
}

TEST_CASE("DeviceLoader: on the CPU it gives the loader's batches and states") {
  const TensorDataset dataset(at::arange(20, at::kFloat), at::arange(20));
  for (const int workers : {0, 2}) {
    DistributedSampler sampler(20, {.num_replicas = 2, .rank = 1, .seed = 1});
    DeviceLoader loader(dataset, sampler, at::kCPU, {.batch_size = 3, .workers = workers});
    CHECK(loader.size() == 4);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      Indices seen;
      for (auto& batch : loader) {
        for (const int64_t index : values(batch.target)) seen.push_back(index);
        CHECK(loader.state().consumed == 2 * static_cast<int64_t>(seen.size()));
      }
      CHECK(seen == sampler.indices());
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

TEST_CASE("DeviceLoader: what a dataset throws comes in the batch's place") {
  const Broken dataset;
  SequentialSampler sampler(20);
  DeviceLoader loader(dataset, sampler, at::kCPU, {.batch_size = 4, .workers = 1});
  for (int pass = 0; pass < 2; ++pass) {
    int seen = 0;
    CHECK_THROWS_MATCHES(
        [&] {
          for (auto& batch : loader) seen += batch.data.defined() ? 1 : 0;
        }(),
        LoaderError, Message("sample 6: unreadable"));
    CHECK(seen == 1);
  }
}

TEST_CASE("ByteText: sequences of bytes follow each other, and each byte's target is the one behind it") {
  const ByteText text("abcdefgh\xff", 4);
  REQUIRE(text.size() == 2);
  const Batch batch = text.get_batch(Indices{1, 0});
  CHECK(batch.data.equal(at::tensor({101, 102, 103, 104, 97, 98, 99, 100}, at::kLong).view({2, 4})));
  CHECK(batch.target.equal(at::tensor({102, 103, 104, 255, 98, 99, 100, 101}, at::kLong).view({2, 4})));
  CHECK(ByteText("abcdefgh", 4).size() == 1);  // the last byte of the second would have no target
  CHECK_THROWS_AS(text.get_batch(Indices{2}), std::out_of_range);
  CHECK_THROWS_WITH(ByteText("abcd", 4), ContainsSubstring("a text of 4 bytes is too short for a sequence of 4"));
  CHECK_THROWS_AS(ByteText("abcd", 0), std::invalid_argument);
}

TEST_CASE("AnyDataset: gives what the dataset in it gives, which is chosen while the program runs") {
  const SyntheticImages images({.size = 5, .channels = 1, .height = 2, .width = 2, .classes = 2});
  const TensorDataset tensors(at::ones({3, 2}), at::arange(3));
  for (const bool is_made_up : {true, false}) {
    const AnyDataset any = is_made_up ? AnyDataset(images) : tensors;
    CHECK(any.size() == (is_made_up ? 5 : 3));
    const Batch expected = is_made_up ? images.get_batch(Indices{2, 1}) : tensors.get_batch(Indices{2, 1});
    CHECK(any.get_batch(Indices{2, 1}, 0).data.equal(expected.data));
    CHECK(any.get_batch(Indices{2, 1}, 7).target.equal(expected.target));
  }
}

}  // namespace
}  // namespace ddp
