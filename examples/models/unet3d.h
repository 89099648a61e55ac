// 3D U-Net (Çiçek et al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation", MICCAI 2016):
// batch norm after each convolution, transposed convolutions on the way up.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/recompute/recompute.h>

namespace models {

struct UNet3dOptions {
  int64_t in_channels = 1;
  int64_t classes = 1;     ///< logits per voxel; 1: something against background
  int64_t width = 16;      ///< channels at full resolution; twice as many on each level below
  int64_t levels = 3;      ///< times that depth, height and width are halved
  bool recompute = false;  ///< keep the blocks' inputs only, and compute the rest again in the backward
};

/// Input float (N, in_channels, D, H, W), output logits (N, classes, D, H, W); D, H and W are multiples of 2^levels.
/// Parameters are called encoder<i>, up<i>, decoder<i> (i = 0 is full resolution) and head.
class UNet3dImpl : public torch::nn::Module {
 public:
  explicit UNet3dImpl(const UNet3dOptions& options = {}) : levels_(options.levels), recomputes_(options.recompute) {
    namespace nn = torch::nn;
    int64_t in = options.in_channels;
    for (int64_t i = 0; i <= levels_; ++i) {
      const int64_t width = options.width << i;
      encoders_.push_back(register_module("encoder" + std::to_string(i), block(in, width)));
      in = width;
    }
    for (int64_t i = 0; i < levels_; ++i) {
      const int64_t width = options.width << i;
      ups_.push_back(register_module(
          "up" + std::to_string(i),
          nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2 * width, width, /*kernel_size=*/2).stride(2))));
      decoders_.push_back(register_module("decoder" + std::to_string(i), block(2 * width, width)));
    }
    head_ = register_module("head", nn::Conv3d(nn::Conv3dOptions(options.width, options.classes, /*kernel_size=*/1)));
  }

  torch::Tensor forward(torch::Tensor x) {
    for (const int64_t side : x.sizes().slice(2)) {
      if (side % (int64_t{1} << levels_) == 0) continue;
      throw std::invalid_argument("UNet3d: expected sides that are multiples of " + std::to_string(1 << levels_) +
                                  ", got " + std::to_string(side));
    }
    std::vector<torch::Tensor> passed_across;
    for (size_t i = 0; i < encoders_.size(); ++i) {
      if (i > 0) x = torch::max_pool3d(x, 2);
      x = run(encoders_[i], x);
      passed_across.push_back(x);
    }
    for (size_t i = ups_.size(); i-- > 0;) x = run(decoders_[i], torch::cat({passed_across[i], ups_[i](x)}, 1));
    return head_(x);
  }

 private:
  static torch::nn::Sequential block(int64_t in, int64_t out) {
    namespace nn = torch::nn;
    const auto convolution = [](int64_t from, int64_t to) {
      return nn::Conv3d(nn::Conv3dOptions(from, to, /*kernel_size=*/3).padding(1).bias(false));
    };
    return nn::Sequential(convolution(in, out), nn::BatchNorm3d(out), nn::ReLU(), convolution(out, out),
                          nn::BatchNorm3d(out), nn::ReLU());
  }

  // The same numbers either way: the second run leaves the running statistics as they are.
  torch::Tensor run(torch::nn::Sequential& part, const torch::Tensor& x) const {
    return recomputes_ ? ddp::checkpoint({.update_buffers_once = {part.ptr()}}, part, x) : part->forward(x);
  }

  int64_t levels_;
  bool recomputes_;
  std::vector<torch::nn::Sequential> encoders_, decoders_;
  std::vector<torch::nn::ConvTranspose3d> ups_;
  torch::nn::Conv3d head_{nullptr};
};
TORCH_MODULE(UNet3d);

/// Binary cross entropy of the logits (N, 1, …), plus 1 - Dice's coefficient of the probabilities (Milletari et al.,
/// "V-Net", 2016), in float32, the mean over the samples, so that ranks with a part of a batch each get the whole
/// one's gradient. `target` (N, …) is 0 or 1.
inline torch::Tensor bce_dice_loss(const torch::Tensor& logits, const torch::Tensor& target) {
  const auto scores = logits.to(torch::kFloat);
  const auto truth = target.unsqueeze(1).to(torch::kFloat);
  const auto found = torch::sigmoid(scores);
  const auto per_sample = [](const torch::Tensor& values) { return values.flatten(1).sum(1); };
  const auto dice = (2 * per_sample(found * truth) + 1) / (per_sample(found) + per_sample(truth) + 1);
  return torch::binary_cross_entropy_with_logits(scores, truth) + (1 - dice).mean();
}

}  // namespace models
