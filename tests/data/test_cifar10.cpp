// Batched access to CIFAR-10 in memory, alone, through batches() and through LibTorch's data loader.
#include "data/cifar10.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>

#include <limits>
#include <stdexcept>
#include <type_traits>

#include "data/batches.h"
#include "data/error.h"
#include "samplers/distributed_sampler.h"
#include "tests/data/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Normalization kHalf{.mean = {0.5, 0.5, 0.5}, .stddev = {0.5, 0.5, 0.5}};

std::vector<int64_t> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

/// 7 images in two training files and 3 for the test.
class Cifar10Test : public ::testing::Test {
 protected:
  Cifar10Test() {
    testing::write_file(dir() / "data_batch_1.bin", testing::records(0, 4));
    testing::write_file(dir() / "data_batch_2.bin", testing::records(4, 3));
    testing::write_file(dir() / "test_batch.bin", testing::records(20, 3));
  }
  const fs::path& dir() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(Cifar10Test, holds_the_bytes_and_labels_of_all_files_of_its_split) {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  ASSERT_EQ(train.size(), 7);
  EXPECT_EQ(train.images().sizes(), at::IntArrayRef({7, 3, 32, 32}));
  EXPECT_EQ(train.images().scalar_type(), at::kByte);
  EXPECT_THAT(values(train.labels()), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  const uint8_t* bytes = train.images().const_data_ptr<uint8_t>();
  for (int64_t image = 0; image < 7; ++image) {
    for (int64_t i = 0; i < kCifar10ImageBytes; ++i) ASSERT_EQ(*bytes++, testing::pixel(image, i));
  }
  EXPECT_EQ(Cifar10(dir(), Cifar10::Split::kTest).size(), 3);
}

TEST_F(Cifar10Test, gathers_a_batch_in_the_given_order_with_repeats) {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  const std::vector<int64_t> indices = {6, 0, 6, 3};
  const Batch batch = train.get_batch(indices);
  EXPECT_EQ(batch.data.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({4, 3, 32, 32}));
  EXPECT_TRUE(batch.data.equal(train.images().index_select(0, at::tensor(indices)).to(at::kFloat).div(255)));
  EXPECT_THAT(values(batch.target), ElementsAre(6, 0, 6, 3));
  const Batch empty = train.get_batch(std::vector<int64_t>());
  EXPECT_EQ(empty.data.sizes(), at::IntArrayRef({0, 3, 32, 32}));
  EXPECT_EQ(empty.target.numel(), 0);
}

TEST_F(Cifar10Test, normalizes_to_the_same_bits_as_to_tensor_and_normalize) {
  const Normalization usual{.mean = {0.4914, 0.4822, 0.4465}, .stddev = {0.247, 0.2435, 0.2616}};
  for (const Normalization& normalization : {Normalization{}, kHalf, usual}) {
    const Cifar10 train(dir(), Cifar10::Split::kTrain, normalization);
    const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6};
    const at::Tensor mean = at::tensor(at::ArrayRef<float>(normalization.mean)).view({3, 1, 1});
    const at::Tensor stddev = at::tensor(at::ArrayRef<float>(normalization.stddev)).view({3, 1, 1});
    const at::Tensor expected = train.images().to(at::kFloat).div(255).sub_(mean).div_(stddev);
    EXPECT_TRUE(train.get_batch(all).data.equal(expected));
  }
}

TEST_F(Cifar10Test, refuses_a_normalization_that_gives_no_numbers) {
  const auto refused = [&](const Normalization& normalization, const char* message) {
    EXPECT_THAT([&] { Cifar10(dir(), Cifar10::Split::kTrain, normalization); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  refused({.stddev = {1, 0, 1}}, "channel 1");
  refused({.stddev = {1, 1, -1}}, "channel 2");
  refused({.mean = {std::numeric_limits<float>::quiet_NaN(), 0, 0}}, "channel 0");
}

TEST_F(Cifar10Test, an_index_out_of_range_is_named) {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  for (const int64_t index : {int64_t{7}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const std::vector<int64_t> indices = {0, index};
    EXPECT_THAT(
        [&] { train.get_batch(indices); },
        ThrowsMessage<std::out_of_range>(HasSubstr("index " + std::to_string(index) + " is out of range for 7")));
  }
  const std::vector<size_t> huge = {std::numeric_limits<size_t>::max()};
  EXPECT_THROW(train.get_batch(huge), std::out_of_range);
}

TEST_F(Cifar10Test, a_damaged_file_is_refused_by_its_name) {
  testing::write_file(dir() / "data_batch_2.bin", testing::records(4, 3).substr(1));
  EXPECT_THAT([&] { Cifar10(dir(), Cifar10::Split::kTrain); },
              ThrowsMessage<DataError>(HasSubstr((dir() / "data_batch_2.bin").string())));
  testing::write_file(dir() / "batches.meta.txt", "cat\n");
  EXPECT_THAT([&] { Cifar10(dir(), Cifar10::Split::kTest); }, ThrowsMessage<DataError>(HasSubstr("batches.meta.txt")));
}

TEST_F(Cifar10Test, batches_follow_the_sampler_and_end_with_a_smaller_one) {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  DistributedSampler sampler(train.size(), {.num_replicas = 2, .rank = 1});
  sampler.set_epoch(3);
  const auto range = batches(train, sampler.indices(), 3);
  EXPECT_EQ(range.size(), 2);
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<int64_t> seen;
    std::vector<int64_t> sizes;
    for (auto& batch : range) {
      sizes.push_back(batch.data.size(0));
      for (const int64_t label : values(batch.target)) seen.push_back(label);  // an image's label is its index here
    }
    EXPECT_EQ(seen, sampler.indices()) << "pass " << pass;
    EXPECT_THAT(sizes, ElementsAre(3, 1));
  }
}

TEST_F(Cifar10Test, batches_of_nothing_and_of_any_size) {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  for ([[maybe_unused]] auto& batch : batches(train, {}, 4)) FAIL() << "a batch of nothing";
  EXPECT_EQ(batches(train, {}, 4).size(), 0);
  int count = 0;
  for (auto& batch : batches(train, {5, 4}, std::numeric_limits<int64_t>::max())) {
    EXPECT_THAT(values(batch.target), ElementsAre(5, 4));
    ++count;
  }
  EXPECT_EQ(count, 1);
  EXPECT_EQ(batches(train, {5, 4}, std::numeric_limits<int64_t>::max()).size(), 1);
  EXPECT_THAT([&] { batches(train, {0}, 0); }, ThrowsMessage<std::invalid_argument>(HasSubstr("batch size 0")));
}

TEST_F(Cifar10Test, plugs_into_the_data_loader_of_libtorch_with_the_sampler) {
  const Cifar10 train(dir(), Cifar10::Split::kTrain, kHalf);
  for (const size_t workers : {size_t{0}, size_t{2}}) {
    DistributedSampler sampler(train.size(), {.num_replicas = 2, .rank = 0});
    auto loader = torch::data::make_data_loader(train, sampler, torch::data::DataLoaderOptions(2).workers(workers));
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      std::vector<at::Tensor> data;
      std::vector<at::Tensor> target;
      for (const Batch& batch : *loader) {
        data.push_back(batch.data);
        target.push_back(batch.target);
      }
      const Batch whole = train.get_batch(sampler.indices());
      EXPECT_TRUE(at::cat(data).equal(whole.data)) << "epoch " << epoch << ", workers " << workers;
      EXPECT_TRUE(at::cat(target).equal(whole.target)) << "epoch " << epoch << ", workers " << workers;
    }
  }
}

}  // namespace
}  // namespace ddp
