#include <torch/types.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/models/image_models.h"
#include "examples/models/lenet.h"
#include "tests/support/catch.h"

namespace models {
namespace {

using Catch::Matchers::WithinAbs;

using Shape = std::vector<int64_t>;
using Shapes = std::map<std::string, Shape>;

Shapes shapes_of(const torch::nn::Module& module) {
  Shapes shapes;
  for (const auto& item : module.named_parameters()) shapes[item.key()] = item.value().sizes().vec();
  for (const auto& item : module.named_buffers()) shapes[item.key()] = item.value().sizes().vec();
  return shapes;
}

int64_t parameter_count(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

void add_norm(Shapes& shapes, const std::string& name, int64_t channels) {
  for (const char* field : {"weight", "bias", "running_mean", "running_var"}) shapes[name + "." + field] = {channels};
  shapes[name + ".num_batches_tracked"] = {};
}

// torchvision's names and shapes, from the paper's table 1: blocks per layer, widths 64 to 512, a projection where the
// shape changes.
Shapes expected_resnet(const std::vector<int>& blocks, bool bottleneck, int64_t classes) {
  Shapes shapes;
  shapes["conv1.weight"] = {64, 3, 7, 7};
  add_norm(shapes, "bn1", 64);
  int64_t in = 64;
  for (int layer = 0; layer < 4; ++layer) {
    const int64_t width = int64_t{64} << layer;
    const int64_t out = bottleneck ? 4 * width : width;
    for (int block = 0; block < blocks[layer]; ++block) {
      const auto name = "layer" + std::to_string(layer + 1) + "." + std::to_string(block) + ".";
      const auto add = [&](int index, int64_t from, int64_t to, int64_t kernel) {
        shapes[name + "conv" + std::to_string(index) + ".weight"] = {to, from, kernel, kernel};
        add_norm(shapes, name + "bn" + std::to_string(index), to);
      };
      if (bottleneck) {
        add(1, in, width, 1);
        add(2, width, width, 3);
        add(3, width, out, 1);
      } else {
        add(1, in, width, 3);
        add(2, width, out, 3);
      }
      if (block == 0 && (in != out || layer > 0)) {
        shapes[name + "downsample.0.weight"] = {out, in, 1, 1};
        add_norm(shapes, name + "downsample.1", out);
      }
      in = out;
    }
  }
  shapes["fc.weight"] = {classes, in};
  shapes["fc.bias"] = {classes};
  return shapes;
}

TEST_CASE("Models: LeNet has the tutorial's names and shapes") {
  const Shapes expected = {
      {"conv1.weight", {6, 3, 5, 5}}, {"conv1.bias", {6}}, {"conv2.weight", {16, 6, 5, 5}}, {"conv2.bias", {16}},
      {"fc1.weight", {120, 400}},     {"fc1.bias", {120}}, {"fc2.weight", {84, 120}},       {"fc2.bias", {84}},
      {"fc3.weight", {10, 84}},       {"fc3.bias", {10}}};
  LeNet net;
  CHECK(shapes_of(*net) == expected);
  CHECK(net(torch::zeros({2, 3, 32, 32})).sizes() == Shape{2, 10});
}

TEST_CASE("Models: ResNets have torchvision's names and shapes") {
  CHECK(shapes_of(*ResNet18()) == expected_resnet({2, 2, 2, 2}, false, 1000));
  CHECK(shapes_of(*ResNet34()) == expected_resnet({3, 4, 6, 3}, false, 1000));
  CHECK(shapes_of(*ResNet50(ResNetOptions{.num_classes = 7})) == expected_resnet({3, 4, 6, 3}, true, 7));
}

TEST_CASE("Models: ResNets have the published number of parameters") {
  CHECK(parameter_count(*ResNet18()) == 11'689'512);
  CHECK(parameter_count(*ResNet34()) == 21'797'672);
  CHECK(parameter_count(*ResNet50()) == 25'557'032);
}

TEST_CASE("Models: ImageNet's other nets have torchvision's number of parameters and first and last names") {
  AlexNet alexnet;
  CHECK(parameter_count(*alexnet) == 61'100'840);
  CHECK(shapes_of(*alexnet).at("classifier.6.weight") == Shape{1000, 4096});
  CHECK(alexnet->forward(torch::rand({1, 3, 64, 64})).sizes() == Shape{1, 1000});
  const auto googlenet = shapes_of(*GoogLeNet());
  CHECK(parameter_count(*GoogLeNet()) == 13'004'888);
  CHECK(parameter_count(*GoogLeNet(GoogLeNetOptions{.aux_logits = false})) == 6'624'904);
  CHECK(googlenet.at("inception3a.branch2.1.conv.weight") == Shape{128, 96, 3, 3});
  CHECK(googlenet.at("inception5b.branch4.1.bn.running_var") == Shape{128});
  CHECK(googlenet.at("aux2.conv.conv.weight") == Shape{128, 528, 1, 1});
  const auto inception = shapes_of(*InceptionV3());
  CHECK(parameter_count(*InceptionV3()) == 27'161'264);
  CHECK(inception.at("Mixed_6b.branch7x7_2.conv.weight") == Shape{128, 128, 1, 7});
  CHECK(inception.at("AuxLogits.conv1.conv.weight") == Shape{768, 128, 5, 5});
}

TEST_CASE("Models: auxiliary classifiers speak in training alone, and their part of the loss is the papers'") {
  GoogLeNet net(GoogLeNetOptions{.num_classes = 4});
  const auto images = torch::rand({2, 3, 64, 64});
  const auto output = net->forward(images);
  CHECK(output.sizes() == Shape{2, 3, 4});
  net->eval();
  CHECK(net->forward(images).sizes() == Shape{2, 4});
  const auto target = torch::tensor({1, 3}, torch::kLong);
  const auto of = [&](int i) { return torch::nn::functional::cross_entropy(output.select(1, i), target); };
  CHECK(classification_loss(output, target).allclose(of(0) + 0.3 * (of(1) + of(2))));
  CHECK(classification_loss(output.narrow(1, 0, 2), target).allclose(of(0) + 0.4 * of(1)));
  CHECK(classification_loss(output.select(1, 0), target).equal(of(0)));
}

TEST_CASE("Models: nets are made by torchvision's names") {
  CHECK(dynamic_cast<AlexNetImpl*>(make_image_model("alexnet", 3).get()) != nullptr);
  CHECK(dynamic_cast<ResNet18Impl*>(make_image_model("resnet18", 3).get()) != nullptr);
  CHECK(make_image_model("googlenet", 3)->named_parameters()["fc.bias"].size(0) == 3);
  CHECK(image_size_of("inception_v3") == 299);
  CHECK(image_size_of("vgg16", 32) == 32);
  for (const auto& [name, too_small] :
       {std::pair{"alexnet", 62}, {"vgg16", 31}, {"googlenet", 14}, {"inception_v3", 298}, {"resnet18", -1}}) {
    CHECK_THROWS_AS(image_size_of(name, too_small), std::invalid_argument);
  }
  CHECK_THROWS_AS(make_image_model("resnet18", 3, /*transform_input=*/true), std::invalid_argument);
  CHECK_THROWS_AS(make_image_model("vgg99", 3), std::invalid_argument);
}

TEST_CASE("Models: ResNets map images to logits") {
  const torch::NoGradGuard no_grad;
  const auto image = torch::rand({2, 3, 64, 64});
  CHECK(ResNet18()->forward(image).sizes() == Shape{2, 1000});
  CHECK(ResNet50(ResNetOptions{.num_classes = 10})->forward(image).sizes() == Shape{2, 10});
}

TEST_CASE("Models: ResNet convolutions start with Kaiming's normal over fan out") {
  torch::manual_seed(0);
  ResNet18 net;
  const auto& weight = net->layer4->named_parameters()["1.conv2.weight"];
  CHECK_THAT(weight.std().item<double>(), WithinAbs(std::sqrt(2.0 / (512 * 3 * 3)), 1e-4));
  CHECK_THAT(weight.mean().item<double>(), WithinAbs(0.0, 1e-4));
  CHECK(net->bn1->weight.min().item<double>() == 1.0);
}

TEST_CASE("Models: zero init residual makes every block a shortcut") {
  ResNet50 net(ResNetOptions{.zero_init_residual = true});
  int zeroed = 0;
  for (const auto& item : net->named_parameters()) {
    const bool is_zero = item.value().eq(0).all().item<bool>();
    const bool is_last_norm = item.key().find("bn3.weight") != std::string::npos;
    zeroed += is_last_norm && is_zero ? 1 : 0;
  }
  CHECK(zeroed == 16);
}

}  // namespace
}  // namespace models
