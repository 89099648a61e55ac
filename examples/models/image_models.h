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

/// "alexnet", "vgg16", "googlenet", "inception_v3", "resnet18", "resnet34" or "resnet50". Throws std::invalid_argument
/// for another name.
inline std::shared_ptr<ImageClassifier> make_image_model(const std::string& name, int64_t classes) {
  if (name == "alexnet") return std::make_shared<AlexNetImpl>(AlexNetOptions{.num_classes = classes});
  if (name == "vgg16") return std::make_shared<Vgg16Impl>(Vgg16Options{.num_classes = classes});
  if (name == "googlenet") return std::make_shared<GoogLeNetImpl>(GoogLeNetOptions{.num_classes = classes});
  if (name == "inception_v3") return std::make_shared<InceptionV3Impl>(InceptionV3Options{.num_classes = classes});
  if (name.starts_with("resnet")) return make_resnet(name, {.num_classes = classes});
  throw std::invalid_argument("unknown net '" + name +
                              "': expected alexnet, vgg16, googlenet, inception_v3, resnet18, resnet34 or resnet50");
}

/// Height and width of the pictures that the net was designed for.
inline int64_t image_size_of(const std::string& name) {
  return name == "inception_v3" ? 299 : 224;
}

}  // namespace models
