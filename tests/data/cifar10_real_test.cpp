// Real CIFAR-10 images, wherever DDPRUN_TEST_CIFAR10_DIR says they are: the full archive or a part of it. Only what
// holds for both is asked.
#include <ATen/ATen.h>

#include <cstdlib>

#include <ddprun/data/image_datasets.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using test::ElementsAre;

TEST_CASE("Cifar10Real: has the official classes in like numbers and the colours of photographs") {
  const char* dir = std::getenv("DDPRUN_TEST_CIFAR10_DIR");
  if (dir == nullptr || *dir == '\0') {
    SKIP("DDPRUN_TEST_CIFAR10_DIR is not set: no real CIFAR-10 images (scripts/get_cifar10 downloads them)");
  }
  for (const auto split : {Cifar10::Split::kTrain, Cifar10::Split::kTest}) {
    INFO((split == Cifar10::Split::kTrain ? "train" : "test"));
    const Cifar10 images(dir, split);
    CHECK_THAT(images.class_names(),
               ElementsAre("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"));
    REQUIRE(images.size() >= 1000);
    const at::Tensor per_class = images.labels().bincount({}, kCifar10Classes).to(at::kDouble) / images.size();
    CHECK(per_class.min().item<double>() > 0.05);
    CHECK(per_class.max().item<double>() < 0.2);
    // The training set's well-known statistics are 0.49, 0.48, 0.45 and 0.25, 0.24, 0.26; a part of it comes close.
    // Wrong strides or a shift by one byte would not keep the blue channel darkest.
    const at::Tensor data = images.images().to(at::kFloat).div(255);
    const at::Tensor mean = data.mean({0, 2, 3});
    const at::Tensor stddev = data.std({0, 2, 3});
    CHECK(mean[0].item<float>() > 0.45F);
    CHECK(mean[0].item<float>() < 0.53F);
    CHECK(mean[1].item<float>() > 0.44F);
    CHECK(mean[1].item<float>() < 0.52F);
    CHECK(mean[2].item<float>() > 0.40F);
    CHECK(mean[2].item<float>() < 0.49F);
    CHECK(mean[2].item<float>() < mean[0].item<float>());
    CHECK(stddev.min().item<float>() > 0.21F);
    CHECK(stddev.max().item<float>() < 0.30F);
    // Neighbours in a row and in a column are alike, as in photographs, which tells rows of 32 from any other layout.
    const at::Tensor down = (data.slice(2, 1) - data.slice(2, 0, 31)).abs().mean();
    const at::Tensor right = (data.slice(3, 1) - data.slice(3, 0, 31)).abs().mean();
    CHECK(down.item<float>() < 0.08F);
    CHECK(right.item<float>() < 0.08F);
  }
}

}  // namespace
}  // namespace ddp
