// Transforms of samples and batches, composed of steps: those of the library and custom functions. The library's steps
// are for pictures that are float tensors (C, H, W). Their random parameters have torchvision's distributions, and for
// the same parameters the pixels are torchvision's. Reference: torchvision.transforms.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/image.h>

namespace ddp::transforms {

/// One step for one sample: a picture (C, H, W), or any other tensor. It is made of any function of a tensor, or of a
/// tensor and a SampleRandom. The function must draw all random numbers from the SampleRandom; then a sample is the
/// same with any number of workers and after a resume. Several threads call it at the same time; it must not change its
/// argument.
class Transform {
 public:
  /// A function of a tensor, or of a tensor and a SampleRandom, that returns a tensor.
  template <typename Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, Transform> &&
           (std::is_invocable_r_v<at::Tensor, const Function&, const at::Tensor&, SampleRandom&> ||
            std::is_invocable_r_v<at::Tensor, const Function&, const at::Tensor&>)) Transform(Function function) {
    if constexpr (std::is_invocable_v<const Function&, const at::Tensor&, SampleRandom&>) {
      function_ = std::move(function);
    } else {
      function_ = [function = std::move(function)](const at::Tensor& sample, SampleRandom& /*random*/) {
        return function(sample);
      };
    }
  }

  /// The transformed sample; what is random comes from `random`.
  at::Tensor operator()(const at::Tensor& sample, SampleRandom& random) const { return function_(sample, random); }

 private:
  std::function<at::Tensor(const at::Tensor&, SampleRandom&)> function_;
};

/// Applies the steps one after the other; without steps it returns the sample unchanged.
///
///     using namespace ddp::transforms;
///     const auto augment = compose({random_crop({.size = 32, .padding = 4}), random_horizontal_flip(),
///                                   [](const at::Tensor& image) { return image.sqrt(); }, random_erasing()});
inline Transform compose(std::vector<Transform> steps) {
  return [steps = std::move(steps)](const at::Tensor& sample, SampleRandom& random) {
    at::Tensor result = sample;
    for (const auto& step : steps) result = step(result, random);
    return result;
  };
}

namespace detail {

/// Throws std::invalid_argument outside [0, 1].
void check_probability(double probability);

}  // namespace detail

/// Applies all steps with this probability, otherwise none of them. Throws std::invalid_argument for one outside [0,
/// 1]. Reference: torchvision.transforms.RandomApply.
inline Transform random_apply(std::vector<Transform> steps, double probability = 0.5) {
  detail::check_probability(probability);
  return [all = compose(std::move(steps)), probability](const at::Tensor& sample, SampleRandom& random) {
    return random.uniform() < probability ? all(sample, random) : sample;
  };
}

/// One step for a whole batch, such as mixup(); called and seeded as a Transform.
using BatchTransform = std::function<Batch(const Batch& batch, SampleRandom& random)>;

/// Left and right exchanged, with this probability. Throws std::invalid_argument for one outside [0, 1], as all here.
Transform random_horizontal_flip(double probability = 0.5);
/// Top and bottom exchanged.
Transform random_vertical_flip(double probability = 0.5);

/// Settings of random_rotation() and rotate(), all optional.
struct RotationOptions {
  double degrees = 15;    ///< by an angle in [-degrees, degrees], counter-clockwise
  bool bilinear = false;  ///< whether values between pixels are interpolated; if not, the nearest pixel is used
  double fill = 0;        ///< the value of pixels outside the picture
};
/// Turned around its centre, in a picture of the same size. Reference: torchvision.transforms.RandomRotation.
Transform random_rotation(const RotationOptions& options = {});
/// By this angle. Throws std::invalid_argument for a picture of whole numbers. Reference:
/// torchvision.transforms.functional.rotate.
at::Tensor rotate(const at::Tensor& image, double degrees, const RotationOptions& options = {});

/// Settings of random_crop(), all optional.
struct RandomCropOptions {
  int64_t size = 32;    ///< height and width of what is cut out
  int64_t padding = 0;  ///< pixels added on each side before
  double fill = 0;      ///< of the padding
};
/// A square at a random place. Reference: torchvision.transforms.RandomCrop. The transform throws
/// std::invalid_argument for a picture that is smaller.
Transform random_crop(const RandomCropOptions& options);
/// The square in the middle. Reference: torchvision.transforms.CenterCrop, which pads what is smaller; this throws.
Transform center_crop(int64_t size);

/// Settings of random_erasing(), all optional; the defaults are torchvision's.
struct RandomErasingOptions {
  double probability = 0.5;  ///< that a rectangle is overwritten
  double least_area = 0.02;  ///< of the rectangle, as a part of the picture's
  double most_area = 0.33;   ///< the same

  double least_ratio = 0.3;  ///< height of the rectangle to its width
  double most_ratio = 3.3;   ///< the same
  double value = 0;          ///< what the rectangle is filled with
  bool noise = false;        ///< fill with numbers of a normal distribution instead
};
/// A random rectangle is overwritten (Zhong et al., "Random Erasing Data Augmentation", AAAI 2020). Reference:
/// torchvision.transforms.RandomErasing.
Transform random_erasing(const RandomErasingOptions& options = {});
/// The rectangle that random_erasing() draws; of height 0 where ten tries gave none that is smaller than the picture.
Box draw_erased(int64_t height, int64_t width, const RandomErasingOptions& options, SampleRandom& random);

/// (value - mean) / stddev for each channel. Throws std::invalid_argument unless both have a number for each channel
/// (or one for all) and every stddev is above 0.
Transform normalize(std::vector<double> mean, std::vector<double> stddev);

/// Settings of mixup() and cutmix().
struct MixOptions {
  int64_t classes = 0;  ///< number of classes, for labels that are indices
  double alpha = 1;     ///< parts are drawn from Beta(alpha, alpha)
};

/// Each sample becomes part · itself + (1 - part) · the preceding sample of the batch, with one `part` for the whole
/// batch: Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; torchvision's MixUp. `target`, int64
/// (B) class indices or float (B, classes), becomes float (B, classes), which cross_entropy takes. Throws
/// std::invalid_argument for an alpha that is not above 0 or no classes, and the transform does for another target.
BatchTransform mixup(const MixOptions& options);
/// Instead of mixing, a random rectangle of the sample before is pasted: Yun et al., "CutMix", ICCV 2019; torchvision's
/// CutMix. Samples are pictures (B, C, H, W).
BatchTransform cutmix(const MixOptions& options);

/// Does the mixing with a given `part`.
Batch mix(const Batch& batch, double part, int64_t classes);

/// A number of Beta(alpha, alpha).
double draw_beta(double alpha, SampleRandom& random);

}  // namespace ddp::transforms
