// The bundled sample is readable, balanced and what its README says.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/cifar10.h"

namespace ddp {
namespace {

using ::testing::ElementsAre;

TEST(FashionSample, has_balanced_classes_and_grey_images_in_a_black_border) {
  for (const auto& [split, size] : {std::pair{Cifar10::Split::kTrain, 2000}, {Cifar10::Split::kTest, 500}}) {
    const Cifar10 sample(DDPRUN_FASHION_SAMPLE, split);
    ASSERT_EQ(sample.size(), size);
    EXPECT_THAT(sample.class_names(), ElementsAre("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                                                  "Shirt", "Sneaker", "Bag", "Ankle boot"));
    EXPECT_TRUE(sample.labels().bincount().eq(size / kCifar10Classes).all().item<bool>());
    const at::Tensor& images = sample.images();
    EXPECT_TRUE(images.select(1, 0).equal(images.select(1, 1)));
    EXPECT_TRUE(images.select(1, 0).equal(images.select(1, 2)));
    const at::Tensor inner = images.slice(2, 2, 30).slice(3, 2, 30);
    EXPECT_EQ(images.sum().item<int64_t>(), inner.sum().item<int64_t>()) << "the border of 2 is not black";
    EXPECT_TRUE(inner.amax({1, 2, 3}).gt(50).all().item<bool>()) << "an image is empty";
  }
}

TEST(FashionSample, has_the_licence_notice_beside_it) {
  for (const char* name : {"README.md", "LICENSE"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::path(DDPRUN_FASHION_SAMPLE) / name)) << name;
  }
}

}  // namespace
}  // namespace ddp
