// Batched access to CIFAR-10 in memory, alone, through batches() and through LibTorch's data loader.
#include <ATen/ATen.h>
#include <torch/data/dataloader.h>

#include <limits>
#include <stdexcept>
#include <type_traits>

#include <ddprun/data/batches.h>
#include <ddprun/data/byte_source.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "tests/data/cifar10_records.h"
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

constexpr Normalization kHalf{.mean = {0.5, 0.5, 0.5}, .stddev = {0.5, 0.5, 0.5}};

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

/// 7 images in two training files and 3 for the test.
class Cifar10Test {
 protected:
  Cifar10Test() {
    test::write_file(dir() / "data_batch_1.bin", test::records(0, 4));
    test::write_file(dir() / "data_batch_2.bin", test::records(4, 3));
    test::write_file(dir() / "test_batch.bin", test::records(20, 3));
  }
  const fs::path& dir() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(Cifar10Test, "Cifar10: holds the bytes and labels of all files of its split") {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  REQUIRE(train.size() == 7);
  CHECK(train.images().sizes() == at::IntArrayRef({7, 3, 32, 32}));
  CHECK(train.images().scalar_type() == at::kByte);
  CHECK_THAT(numbers_of(train.labels()), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  const uint8_t* bytes = train.images().const_data_ptr<uint8_t>();
  for (int64_t image = 0; image < 7; ++image) {
    for (int64_t i = 0; i < kCifar10ImageBytes; ++i) REQUIRE(*bytes++ == test::pixel(image, i));
  }
  CHECK(Cifar10(dir(), Cifar10::Split::kTest).size() == 3);
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: gathers a batch in the given order with repeats") {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  const std::vector<int64_t> indices = {6, 0, 6, 3};
  const Batch batch = train.get_batch(indices);
  CHECK(batch.data.scalar_type() == at::kFloat);
  CHECK(batch.data.sizes() == at::IntArrayRef({4, 3, 32, 32}));
  CHECK(batch.data.equal(train.images().index_select(0, at::tensor(indices)).to(at::kFloat).div(255)));
  CHECK_THAT(numbers_of(batch.target), ElementsAre(6, 0, 6, 3));
  const Batch empty = train.get_batch(std::vector<int64_t>());
  CHECK(empty.data.sizes() == at::IntArrayRef({0, 3, 32, 32}));
  CHECK(empty.target.numel() == 0);
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: normalizes to the same bits as ToTensor and Normalize") {
  const Normalization usual{.mean = {0.4914, 0.4822, 0.4465}, .stddev = {0.247, 0.2435, 0.2616}};
  for (const Normalization& normalization : {Normalization{}, kHalf, usual}) {
    const Cifar10 train(dir(), Cifar10::Split::kTrain, normalization);
    const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6};
    const at::Tensor mean = at::tensor(at::ArrayRef<float>(normalization.mean)).view({3, 1, 1});
    const at::Tensor stddev = at::tensor(at::ArrayRef<float>(normalization.stddev)).view({3, 1, 1});
    const at::Tensor expected = train.images().to(at::kFloat).div(255).sub_(mean).div_(stddev);
    CHECK(train.get_batch(all).data.equal(expected));
  }
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: refuses a normalization that gives no numbers") {
  const auto refused = [&](const Normalization& normalization, const char* message) {
    CHECK_THROWS_MATCHES(Cifar10(dir(), Cifar10::Split::kTrain, normalization), std::invalid_argument,
                         MessageMatches(ContainsSubstring(message)));
  };
  refused({.stddev = {1, 0, 1}}, "channel 1");
  refused({.stddev = {1, 1, -1}}, "channel 2");
  refused({.mean = {std::numeric_limits<float>::quiet_NaN(), 0, 0}}, "channel 0");
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: an index out of range is named") {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  for (const int64_t index : {int64_t{7}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const std::vector<int64_t> indices = {0, index};
    CHECK_THROWS_MATCHES(
        train.get_batch(indices), std::out_of_range,
        MessageMatches(ContainsSubstring("index " + std::to_string(index) + " is out of range for 7")));
  }
  const std::vector<size_t> huge = {std::numeric_limits<size_t>::max()};
  CHECK_THROWS_AS(train.get_batch(huge), std::out_of_range);
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: a damaged file is refused by its name") {
  test::write_file(dir() / "data_batch_2.bin", test::records(4, 3).substr(1));
  CHECK_THROWS_MATCHES(Cifar10(dir(), Cifar10::Split::kTrain), DataError,
                       MessageMatches(ContainsSubstring((dir() / "data_batch_2.bin").string())));
  test::write_file(dir() / "batches.meta.txt", "cat\n");
  CHECK_THROWS_MATCHES(Cifar10(dir(), Cifar10::Split::kTest), DataError,
                       MessageMatches(ContainsSubstring("batches.meta.txt")));
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: batches follow the sampler and end with a smaller one") {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  DistributedSampler sampler(train.size(), {.num_replicas = 2, .rank = 1});
  sampler.set_epoch(3);
  const auto range = batches(train, sampler.indices(), 3);
  CHECK(range.size() == 2);
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<int64_t> seen;
    std::vector<int64_t> sizes;
    for (auto& batch : range) {
      sizes.push_back(batch.data.size(0));
      for (const int64_t label : numbers_of(batch.target)) seen.push_back(label);  // an image's label is its index here
    }
    UNSCOPED_INFO("pass " << pass);
    CHECK(seen == sampler.indices());
    CHECK_THAT(sizes, ElementsAre(3, 1));
  }
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: batches of nothing and of any size") {
  const Cifar10 train(dir(), Cifar10::Split::kTrain);
  for ([[maybe_unused]] auto& batch : batches(train, {}, 4)) FAIL("a batch of nothing");
  CHECK(batches(train, {}, 4).size() == 0);
  int count = 0;
  for (auto& batch : batches(train, {5, 4}, std::numeric_limits<int64_t>::max())) {
    CHECK_THAT(numbers_of(batch.target), ElementsAre(5, 4));
    ++count;
  }
  CHECK(count == 1);
  CHECK(batches(train, {5, 4}, std::numeric_limits<int64_t>::max()).size() == 1);
  CHECK_THROWS_MATCHES(batches(train, {0}, 0), std::invalid_argument,
                       MessageMatches(ContainsSubstring("batch size 0")));
}

TEST_CASE_METHOD(Cifar10Test, "Cifar10: plugs into the DataLoader of LibTorch with the sampler") {
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
      INFO("epoch " << epoch << ", workers " << workers);
      CHECK(at::cat(data).equal(whole.data));
      CHECK(at::cat(target).equal(whole.target));
    }
  }
}

}  // namespace
}  // namespace ddp
