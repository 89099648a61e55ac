// The bundled sample is readable, balanced and what its README says.
#include <ATen/ATen.h>

#include <ddprun/data/image_datasets.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using test::ElementsAre;

TEST_CASE("FashionSample: has balanced classes and grey images in a black border") {
  for (const auto& [split, size] : {std::pair{Cifar10::Split::kTrain, 2000}, {Cifar10::Split::kTest, 500}}) {
    const Cifar10 sample(DDPRUN_FASHION_SAMPLE, split);
    REQUIRE(sample.size() == size);
    CHECK_THAT(sample.class_names(), ElementsAre("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                                                 "Shirt", "Sneaker", "Bag", "Ankle boot"));
    CHECK(sample.labels().bincount().eq(size / kCifar10Classes).all().item<bool>());
    const at::Tensor& images = sample.images();
    CHECK(images.select(1, 0).equal(images.select(1, 1)));
    CHECK(images.select(1, 0).equal(images.select(1, 2)));
    const at::Tensor inner = images.slice(2, 2, 30).slice(3, 2, 30);
    UNSCOPED_INFO("the border of 2 is not black");
    CHECK(images.sum().item<int64_t>() == inner.sum().item<int64_t>());
    INFO("an image is empty");
    CHECK(inner.amax({1, 2, 3}).gt(50).all().item<bool>());
  }
}

TEST_CASE("FashionSample: has the licence notice beside it") {
  for (const char* name : {"README.md", "LICENSE"}) {
    INFO(name);
    CHECK(std::filesystem::is_regular_file(std::filesystem::path(DDPRUN_FASHION_SAMPLE) / name));
  }
}

}  // namespace
}  // namespace ddp
