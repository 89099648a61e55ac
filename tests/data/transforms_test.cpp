// Transforms of samples and batches: what they do, how often, the same with any workers; torchvision's pixels are
// compared in transforms_live_test.py.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/data/dataset_wrappers.h>
#include <ddprun/data/datasets.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/transforms.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using namespace transforms;  // as a program has it
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinAbs;

at::Tensor picture(int64_t height = 4, int64_t width = 6) {
  return at::arange(2 * height * width, at::kFloat).view({2, height, width});
}

at::Tensor applied(const Transform& transform, const at::Tensor& image, int64_t index = 0) {
  SampleRandom random(1, 2, index);
  return transform(image, random);
}

// Of 4,000 draws, the part for which `is_so` holds of the result.
template <typename IsSo>
double part_of_draws(const Transform& transform, const at::Tensor& image, IsSo is_so) {
  int count = 0;
  for (int64_t index = 0; index < 4000; ++index) count += is_so(applied(transform, image, index)) ? 1 : 0;
  return count / 4000.0;
}

TEST_CASE("Transforms: flips exchange sides as often as told") {
  const auto image = picture();
  CHECK(applied(random_horizontal_flip(1), image).equal(image.flip({2})));
  CHECK(applied(random_vertical_flip(1), image).equal(image.flip({1})));
  CHECK(applied(random_vertical_flip(0), image).equal(image));
  const auto is_flipped = [&](const at::Tensor& result) { return !result.equal(image); };
  CHECK_THAT(part_of_draws(random_horizontal_flip(0.25), image, is_flipped), WithinAbs(0.25, 0.03));
}

TEST_CASE("Transforms: a composition runs its steps in order, with functions of the user's own") {
  const auto twice = [](const at::Tensor& image) { return image * 2; };
  const auto plus_random = [](const at::Tensor& image, SampleRandom& random) { return image + random.uniform(); };
  SampleRandom random(1, 2, 0);
  const double drawn = random.uniform();
  const auto image = picture();
  CHECK(applied(compose({twice, plus_random}), image).allclose(image * 2 + drawn));
  CHECK(applied(compose({plus_random, twice}), image).allclose((image + drawn) * 2));
  CHECK(applied(compose({}), image).equal(image));
  const auto is_twice = [&](const at::Tensor& result) { return result.equal(image * 2); };
  CHECK_THAT(part_of_draws(random_apply({twice}, 0.7), image, is_twice), WithinAbs(0.7, 0.03));
}

TEST_CASE("Transforms: crops come from every place, with padding around") {
  const auto image = picture(3, 3) + 1;
  std::set<float> corners;
  for (int64_t index = 0; index < 500; ++index) {
    const auto cut = applied(random_crop({.size = 3, .padding = 1, .fill = -1}), image, index);
    CHECK(cut.sizes() == at::IntArrayRef({2, 3, 3}));
    corners.insert(cut[0][0][0].item<float>());
  }
  CHECK(corners == std::set<float>{-1, 1, 2, 4, 5});
  CHECK(applied(center_crop(2), picture(4, 6)).equal(picture(4, 6).slice(1, 1, 3).slice(2, 2, 4)));
  CHECK_THROWS_MATCHES(applied(random_crop({.size = 5}), image), std::invalid_argument,
                       MessageMatches(ContainsSubstring("cannot cut 5 pixels out of a picture of 3 x 3")));
  CHECK_THROWS_AS(applied(center_crop(1), at::zeros({3})), std::invalid_argument);
}

TEST_CASE("Transforms: a quarter turn goes counter-clockwise, and none changes nothing") {
  const auto image = picture(5, 5);
  CHECK(rotate(image, 90).equal(image.rot90(1, {1, 2})));
  CHECK(rotate(image, 0, {.bilinear = true}).allclose(image));
  CHECK(rotate(at::ones({1, 8, 8}), 45, {.fill = 7})[0][0][0].item<float>() == 7);
  std::set<double> sums;
  for (int64_t index = 0; index < 20; ++index) {
    sums.insert(applied(random_rotation({.degrees = 30, .bilinear = true}), image, index).sum().item<double>());
  }
  CHECK(sums.size() > 10);
}

TEST_CASE("Transforms: erasing overwrites one rectangle of the asked size") {
  const auto image = at::ones({2, 20, 30});
  const RandomErasingOptions options{.probability = 1, .least_area = 0.1, .most_area = 0.2, .value = -3};
  for (int64_t index = 0; index < 200; ++index) {
    const auto result = applied(random_erasing(options), image, index);
    const double part = (result[0] == -3).sum().item<double>() / 600;
    CHECK(part > 0.07);
    CHECK(part < 0.25);
    CHECK(result[0].equal(result[1]));
  }
  CHECK(image.equal(at::ones({2, 20, 30})));
  const auto noise = applied(random_erasing({.probability = 1, .least_area = 0.5, .most_area = 0.5, .noise = true}),
                             at::full({1, 100, 100}, 99.0));
  const auto filled = noise.masked_select(noise != 99);
  CHECK_THAT(filled.mean().item<double>(), WithinAbs(0, 0.1));
  CHECK_THAT(filled.std().item<double>(), WithinAbs(1, 0.1));
  const auto is_erased = [&](const at::Tensor& result) { return !result.equal(image); };
  CHECK_THAT(part_of_draws(random_erasing({.probability = 0.3}), image, is_erased), WithinAbs(0.3, 0.03));
}

TEST_CASE("Transforms: normalization is per channel") {
  const auto image = picture();
  const auto result = applied(normalize({1, 2}, {0.5, 4}), image);
  CHECK(result[0].equal((image[0] - 1) / 0.5));
  CHECK(result[1].equal((image[1] - 2) / 4));
  CHECK(applied(normalize({1}, {2}), image).equal((image - 1) / 2));
  CHECK_THROWS_AS(applied(normalize({1, 2, 3}, {1, 1, 1}), image), std::invalid_argument);
}

TEST_CASE("Transforms: settings out of range are refused at once") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(random_horizontal_flip(1.5), std::invalid_argument);
  CHECK_THROWS_AS(random_vertical_flip(nan), std::invalid_argument);
  CHECK_THROWS_AS(random_rotation({.degrees = -1}), std::invalid_argument);
  CHECK_THROWS_AS(random_rotation({.degrees = nan}), std::invalid_argument);
  CHECK_THROWS_AS(random_crop({.size = 0}), std::invalid_argument);
  CHECK_THROWS_AS(random_crop({.size = 3, .padding = -1}), std::invalid_argument);
  for (const double bad : {nan, -0.1, 1.1, HUGE_VAL}) CHECK_THROWS_AS(random_apply({}, bad), std::invalid_argument);
  CHECK_THROWS_MATCHES(rotate(picture().to(at::kByte), 90), std::invalid_argument,
                       MessageMatches(ContainsSubstring("floating-point numbers, got one of Byte")));
  CHECK_THROWS_AS(center_crop(0), std::invalid_argument);
  CHECK_THROWS_AS(random_erasing({.least_area = 0}), std::invalid_argument);
  CHECK_THROWS_AS(random_erasing({.least_ratio = 4}), std::invalid_argument);
  CHECK_THROWS_AS(normalize({0}, {0}), std::invalid_argument);
  CHECK_THROWS_AS(normalize({0, 1}, {1}), std::invalid_argument);
  CHECK_THROWS_AS(mixup({}), std::invalid_argument);
  CHECK_THROWS_AS(mixup({.classes = 2, .alpha = 0}), std::invalid_argument);
  CHECK_THROWS_AS(cutmix({.classes = 2, .alpha = nan}), std::invalid_argument);
}

TEST_CASE("Mixup: each sample takes a part of the one before it, and of its label") {
  const Batch batch{.data = at::tensor({1., 10., 100.}).view({3, 1}), .target = at::tensor({0, 1, 2}, at::kLong)};
  const Batch mixed = mix(batch, 0.75, 3);
  CHECK(mixed.data.flatten().allclose(at::tensor({25.75, 7.75, 77.5})));
  CHECK(mixed.target.allclose(at::tensor({0.75F, 0.F, 0.25F, 0.25F, 0.75F, 0.F, 0.F, 0.25F, 0.75F}).view({3, 3})));
  const Batch again = mix(mixed, 0.5, 3);  // labels that are probabilities already
  CHECK(again.target.sum(1).allclose(at::ones(3)));
  CHECK_THROWS_AS(mix({.data = batch.data, .target = at::zeros({3, 2})}, 0.5, 3), std::invalid_argument);
  for (const int64_t wrong : {-1, 3}) {
    const auto target = at::tensor({int64_t{0}, wrong, int64_t{2}}, at::kLong);
    CHECK_THROWS_MATCHES(mix({.data = batch.data, .target = target}, 0.5, 3), std::invalid_argument,
                         MessageMatches(ContainsSubstring("from 0 to 2, got " + std::to_string(wrong))));
  }
}

TEST_CASE("Mixup: parts are drawn from the beta distribution") {
  const double alpha = GENERATE(0.2, 1.0, 4.0);
  SampleRandom random(3, 0, 0);
  double sum = 0, squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double part = draw_beta(alpha, random);
    CHECK((part >= 0 && part <= 1));
    sum += part;
    squares += part * part;
  }
  const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
  CHECK_THAT(mean, WithinAbs(0.5, 0.01));
  CHECK_THAT(variance, WithinAbs(1 / (4 * (2 * alpha + 1)), 0.005));
}

TEST_CASE("CutMix: the labels' parts are those of the pixels") {
  const auto zeros = at::zeros({1, 3, 12, 8});
  const Batch batch{.data = at::cat({zeros, zeros + 1}), .target = at::tensor({0, 1}, at::kLong)};
  std::set<double> parts;
  for (int64_t index = 0; index < 50; ++index) {
    SampleRandom random(0, 0, index);
    const Batch result = cutmix({.classes = 2})(batch, random);
    const double pasted = result.data[0].mean().item<double>();
    CHECK_THAT(result.target[0][1].item<double>(), WithinAbs(pasted, 1e-6));
    CHECK_THAT(result.data[1].mean().item<double>(), WithinAbs(1 - pasted, 1e-6));
    parts.insert(pasted);
  }
  CHECK(parts.size() > 10);
  CHECK(batch.data[0].equal(zeros[0]));
}

class TransformedTest {
 protected:
  const TensorDataset images_{at::arange(23 * 2 * 4 * 4, at::kFloat).view({23, 2, 4, 4}), at::arange(23) % 5};
  const Transform augment_ = compose({random_crop({.size = 4, .padding = 1}), random_horizontal_flip()});
  const Transformed<TensorDataset> train_{images_, augment_, {.batch = mixup({.classes = 5}), .seed = 4}};
};

TEST_CASE_METHOD(TransformedTest,
                 "Transformed: the batches are the same with any number of workers and after a resume") {
  DistributedSampler sampler(train_.size(), {.num_replicas = 2, .rank = 1, .seed = 3});
  const auto pass = [&](int workers) {
    std::vector<at::Tensor> tensors;
    DeviceLoader loader(train_, sampler, at::kCPU, {.batch_size = 5, .workers = workers});
    for (auto& batch : loader) {
      tensors.push_back(batch.data);
      tensors.push_back(batch.target);
    }
    return tensors;
  };
  const auto expected = pass(0), threaded = pass(3);
  REQUIRE(expected.size() == 6);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(threaded[i].equal(expected[i]));
  CHECK(expected[1].sizes() == at::IntArrayRef({5, 5}));

  std::string state;
  {
    DeviceLoader loader(train_, sampler, at::kCPU, {.batch_size = 5});
    for (auto& batch : loader) {
      CHECK(batch.data.equal(expected[0]));
      state = loader.save();
      break;
    }
  }
  sampler.load(state);
  DeviceLoader resumed(train_, sampler, at::kCPU, {.batch_size = 5});
  CHECK(resumed.begin()->data.equal(expected[2]));
}

TEST_CASE_METHOD(TransformedTest, "Transformed: another epoch is another picture, and the samples stay themselves") {
  const std::vector<int64_t> indices{3, 4, 5};
  const Transformed plain(images_, augment_, {.seed = 4});
  CHECK_FALSE(plain.get_batch(indices, 0).data.equal(plain.get_batch(indices, 1).data));
  CHECK(plain.get_batch(indices, 1).target.equal(at::tensor({3, 4, 0}, at::kLong)));
  // Alone or in another order a sample is cropped as in the batch.
  CHECK(plain.get_batch(std::vector<int64_t>{5}, 1).data[0].equal(plain.get_batch(indices, 1).data[2]));
  const AnyDataset any = plain;
  CHECK(any.get_batch(indices, 1).data.equal(plain.get_batch(indices, 1).data));
  CHECK(plain.get_batch({}, 0).data.size(0) == 0);
}

}  // namespace
}  // namespace ddp
