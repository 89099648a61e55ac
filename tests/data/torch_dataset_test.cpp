// Datasets of LibTorch's and plain functions of an index, under the loaders.
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/shared.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/example.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>

#include <atomic>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ddprun/data/dataset_wrappers.h>
#include <ddprun/data/datasets.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Indices = std::vector<int64_t>;

// Not safe from several threads: it says so when it is asked by two at once.
struct Squares : torch::data::datasets::Dataset<Squares> {
  Squares() = default;
  Squares(const Squares& other) : torch::data::datasets::Dataset<Squares>(other) {}

  torch::data::Example<> get(size_t index) override {
    if (in_use.exchange(true)) throw std::logic_error("two threads in one dataset");
    const auto value = static_cast<int64_t>(index);
    torch::data::Example<> example{torch::full({2}, value * value, torch::kFloat), torch::tensor(value % 3)};
    in_use = false;
    return example;
  }
  std::optional<size_t> size() const override { return 40; }
  std::atomic<bool> in_use = false;
};

struct Endless : torch::data::datasets::Dataset<Endless> {
  torch::data::Example<> get(size_t /*index*/) override { return {}; }
  std::optional<size_t> size() const override { return std::nullopt; }
};

void check_squares(const Batch& batch, const Indices& indices) {
  REQUIRE(batch.data.sizes() == at::IntArrayRef({static_cast<int64_t>(indices.size()), 2}));
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    CHECK(batch.data[row][1].item<int64_t>() == indices[i] * indices[i]);
    CHECK(batch.target[row].item<int64_t>() == indices[i] % 3);
  }
}

TEST_CASE("TorchDataset: a dataset gives its examples stacked, with Stack and without") {
  const TorchDataset plain{Squares()};
  const TorchDataset mapped{Squares().map(torch::data::transforms::Stack<>())};
  CHECK(plain.size() == 40);
  CHECK(mapped.size() == 40);
  check_squares(plain.get_batch(Indices{7, 2, 39}), {7, 2, 39});
  check_squares(mapped.get_batch(Indices{7, 2, 39}), {7, 2, 39});
  CHECK(plain.get_batch(Indices{7, 2}).target.scalar_type() == at::kLong);
}

TEST_CASE("TorchDataset: transforms of LibTorch's apply") {
  const auto add_one = [](torch::data::Example<> example) {
    example.data = example.data + 1;
    return example;
  };
  const TorchDataset set{Squares().map(torch::data::transforms::Lambda<torch::data::Example<>>(add_one))};
  CHECK(set.get_batch(Indices{3}).data[0][0].item<float>() == 10);
}

TEST_CASE("TorchDataset: examples without a target have none") {
  const TorchDataset set{torch::data::datasets::TensorDataset(torch::arange(6).view({3, 2}))};
  const Batch batch = set.get_batch(Indices{2, 0});
  CHECK(batch.data.equal(torch::tensor({4, 5, 0, 1}, torch::kLong).view({2, 2})));
  CHECK_FALSE(batch.target.defined());
}

TEST_CASE("TorchDataset: no two threads share a dataset, and batches come in the sampler's order") {
  const TorchDataset set{Squares()};
  DistributedSampler sampler(set.size(), {.num_replicas = 2, .rank = 0, .seed = 1});
  for (int epoch = 0; epoch < 20; ++epoch) {
    sampler.set_epoch(epoch);
    const auto order = sampler.indices();
    DeviceLoader loader(set, sampler, at::kCPU, {.batch_size = 3, .workers = 4});
    size_t at = 0;
    for (auto& batch : loader) {
      const auto count = static_cast<size_t>(batch.data.size(0));
      check_squares(batch, {order.begin() + at, order.begin() + at + count});
      at += count;
    }
    CHECK(at == order.size());
  }
}

TEST_CASE("TorchDataset: one shared by its copies is shared") {
  const auto shared = torch::data::datasets::make_shared_dataset<Squares>();
  const TorchDataset set{shared};
  check_squares(set.get_batch(Indices{5}), {5});
  const AnyDataset any = set;
  check_squares(any.get_batch(Indices{1, 6}, 0), {1, 6});
}

TEST_CASE("TorchDataset: a dataset without a size is refused") {
  CHECK_THROWS_MATCHES(TorchDataset(Endless()), std::invalid_argument,
                       MessageMatches(ContainsSubstring("does not know its size")));
}

TEST_CASE("Samples: a function of an index is a dataset") {
  const Samples pairs(40, [](int64_t i) { return std::pair(torch::full({2}, i * i, torch::kFloat), i % 3); });
  check_squares(pairs.get_batch(Indices{4, 0}, 0), {4, 0});
  const Samples numbers(9, [](int64_t i) { return std::pair(0.5F * static_cast<float>(i), i > 3); });
  const Batch batch = numbers.get_batch(Indices{8, 1}, 0);
  CHECK(batch.data.equal(torch::tensor({4.F, 0.5F})));
  CHECK(batch.target.equal(torch::tensor({1, 0}, torch::kLong)));
  const Samples alone(3, [](int64_t i) { return torch::full({1}, i); });
  CHECK_FALSE(alone.get_batch(Indices{1}, 0).target.defined());
  const Samples batches(3, [](int64_t i) { return Batch{.data = torch::full({1}, i), .target = torch::tensor(i)}; });
  CHECK(batches.get_batch(Indices{2, 2}, 0).target.equal(torch::tensor({2, 2}, torch::kLong)));
  const Samples by_epoch(3, [](int64_t i, int64_t epoch) { return std::pair(torch::full({1}, i), epoch); });
  CHECK(by_epoch.get_batch(Indices{2}, 7).target.item<int64_t>() == 7);
}

TEST_CASE("Samples: an object with size() and get() is a dataset") {
  struct Rows {
    size_t size() const { return 40; }
    std::pair<torch::Tensor, int> get(int64_t i) const {
      return {torch::full({2}, i * i, torch::kFloat), static_cast<int>(i % 3)};
    }
  };
  const Rows rows;
  const Samples samples(rows);
  SequentialSampler sampler(samples.size(), {.num_replicas = 1, .rank = 0});
  DeviceLoader loader(samples, sampler, at::kCPU, {.batch_size = 16, .workers = 2});
  std::vector<int64_t> sizes;
  for (auto& batch : loader) sizes.push_back(batch.data.size(0));
  CHECK(sizes == std::vector<int64_t>{16, 16, 8});
}

TEST_CASE("Samples: what is wrong is named") {
  const auto get = [](int64_t i) { return i == 3 ? throw std::runtime_error("torn") : torch::full({1}, i); };
  CHECK_THROWS_AS(Samples(-1, get), std::invalid_argument);
  const Samples samples(5, get);
  CHECK_THROWS_MATCHES(samples.get_batch(Indices{5}, 0), std::out_of_range,
                       MessageMatches(ContainsSubstring("index 5 is out of range for 5 samples")));
  SequentialSampler sampler(5, {.num_replicas = 1, .rank = 0});
  Loader loader(samples, sampler, {.batch_size = 5});
  CHECK_THROWS_MATCHES(loader.begin(), LoaderError, MessageMatches(ContainsSubstring("sample 3: torn")));
}

}  // namespace
}  // namespace ddp
