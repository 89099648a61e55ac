// What happens to a sample, or to a batch, on its way into the training, in steps that are put together: the library's
// (tensor_transforms.h, mixup.h) and functions of your own. Reference: torchvision.transforms.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/sample_random.h>

namespace ddp::transforms {

/// One step for one sample: a picture (C, H, W), or whatever the dataset has. Made of any function of a tensor, or of a
/// tensor and a SampleRandom, from which it takes what is random, so that a sample looks the same with any number of
/// workers and after a resume. Called by several threads at once; must leave its argument alone.
class Transform {
 public:
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

  at::Tensor operator()(const at::Tensor& sample, SampleRandom& random) const { return function_(sample, random); }

 private:
  std::function<at::Tensor(const at::Tensor&, SampleRandom&)> function_;
};

/// The steps one after the other; without any the sample as it is.
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

/// The steps with this probability, all of them or none. Throws std::invalid_argument for one outside [0, 1]. Reference:
/// torchvision.transforms.RandomApply.
inline Transform random_apply(std::vector<Transform> steps, double probability = 0.5) {
  detail::check_probability(probability);
  return [all = compose(std::move(steps)), probability](const at::Tensor& sample, SampleRandom& random) {
    return random.uniform() < probability ? all(sample, random) : sample;
  };
}

/// One step for a whole batch, such as mixup(); called and seeded as a Transform.
using BatchTransform = std::function<Batch(const Batch& batch, SampleRandom& random)>;

}  // namespace ddp::transforms
