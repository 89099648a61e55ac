// The nets for pictures by the names that torchvision has for them.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "examples/models/alexnet.h"
#include "examples/models/googlenet.h"
#include "examples/models/image_classifier.h"
#include "examples/models/inception.h"
#include "examples/models/resnet.h"
#include "examples/models/vgg.h"

namespace models {

/// Whether torchvision trained its weights of this net on pictures in another scale than its transforms give, which the
/// net then has to restore: its transform_input.
inline bool has_input_transform(const std::string& name) {
  return name == "googlenet" || name == "inception_v3";
}

/// "alexnet", "vgg16", "googlenet", "inception_v3", "resnet18", "resnet34" or "resnet50". `transform_input`: of a net
/// that has_input_transform(). Throws std::invalid_argument for another name.
inline std::shared_ptr<ImageClassifier> make_image_model(const std::string& name, int64_t classes,
                                                         bool transform_input = false) {
  if (transform_input && !has_input_transform(name)) {
    throw std::invalid_argument(name + " does not support a transformed input; googlenet and inception_v3 do");
  }
  if (name == "alexnet") return std::make_shared<AlexNetImpl>(AlexNetOptions{.num_classes = classes});
  if (name == "vgg16") return std::make_shared<Vgg16Impl>(Vgg16Options{.num_classes = classes});
  if (name == "googlenet") {
    return std::make_shared<GoogLeNetImpl>(
        GoogLeNetOptions{.num_classes = classes, .transform_input = transform_input});
  }
  if (name == "inception_v3") {
    return std::make_shared<InceptionV3Impl>(
        InceptionV3Options{.num_classes = classes, .transform_input = transform_input});
  }
  if (name.starts_with("resnet")) return make_resnet(name, {.num_classes = classes});
  throw std::invalid_argument("unknown net '" + name +
                              "': expected alexnet, vgg16, googlenet, inception_v3, resnet18, resnet34 or resnet50");
}

/// Height and width of the pictures that the net is to be trained on: `wished`, or for 0 those that it was designed
/// for. Throws std::invalid_argument for pictures of which nothing is left before the last layer.
inline int64_t image_size_of(const std::string& name, int64_t wished = 0) {
  const bool is_inception = name == "inception_v3";
  if (wished == 0) return is_inception ? 299 : 224;
  const int64_t least = is_inception          ? 299  // 75 without the auxiliary classifier
                        : name == "alexnet"   ? 63
                        : name == "vgg16"     ? 32
                        : name == "googlenet" ? 15
                                              : 1;
  if (wished >= least) return wished;
  throw std::invalid_argument(name + " needs pictures of at least " + std::to_string(least) + " pixels, got " +
                              std::to_string(wished));
}

}  // namespace models
