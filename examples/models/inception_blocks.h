// The blocks of Inception v3, as torchvision has them: branches side by side, joined along the channels. Letters are
// torchvision's (InceptionA …); the paper's figures 5, 6, 7 and 10.
#pragma once

#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/conv_norm.h"

namespace models::inception {

inline torch::Tensor averaged(const torch::Tensor& x) {
  return torch::avg_pool2d(x, 3, 1, 1);
}

inline const ConvShape k3x3{.kernel = 3, .padding = 1};
inline const ConvShape k3x3Halving{.kernel = 3, .stride = 2};
inline const ConvShape k1x7{.kernel = {1, 7}, .padding = {0, 3}};
inline const ConvShape k7x1{.kernel = {7, 1}, .padding = {3, 0}};
inline const ConvShape k1x3{.kernel = {1, 3}, .padding = {0, 1}};
inline const ConvShape k3x1{.kernel = {3, 1}, .padding = {1, 0}};

class AImpl : public ConvNormBlock {
 public:
  AImpl(int64_t in, int64_t pooled)
      : branch1x1(add("branch1x1", in, 64)),
        branch5x5_1(add("branch5x5_1", in, 48)),
        branch5x5_2(add("branch5x5_2", 48, 64, {.kernel = 5, .padding = 2})),
        branch3x3dbl_1(add("branch3x3dbl_1", in, 64)),
        branch3x3dbl_2(add("branch3x3dbl_2", 64, 96, k3x3)),
        branch3x3dbl_3(add("branch3x3dbl_3", 96, 96, k3x3)),
        branch_pool(add("branch_pool", in, pooled)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::cat({branch1x1(x), branch5x5_2(branch5x5_1(x)), branch3x3dbl_3(branch3x3dbl_2(branch3x3dbl_1(x))),
                       branch_pool(averaged(x))},
                      1);
  }

  ConvNorm branch1x1, branch5x5_1, branch5x5_2, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3, branch_pool;
};
TORCH_MODULE(A);

class BImpl : public ConvNormBlock {
 public:
  explicit BImpl(int64_t in)
      : branch3x3(add("branch3x3", in, 384, k3x3Halving)),
        branch3x3dbl_1(add("branch3x3dbl_1", in, 64)),
        branch3x3dbl_2(add("branch3x3dbl_2", 64, 96, k3x3)),
        branch3x3dbl_3(add("branch3x3dbl_3", 96, 96, k3x3Halving)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::cat({branch3x3(x), branch3x3dbl_3(branch3x3dbl_2(branch3x3dbl_1(x))), torch::max_pool2d(x, 3, 2)}, 1);
  }

  ConvNorm branch3x3, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3;
};
TORCH_MODULE(B);

class CImpl : public ConvNormBlock {
 public:
  CImpl(int64_t in, int64_t inner)
      : branch1x1(add("branch1x1", in, 192)),
        branch7x7_1(add("branch7x7_1", in, inner)),
        branch7x7_2(add("branch7x7_2", inner, inner, k1x7)),
        branch7x7_3(add("branch7x7_3", inner, 192, k7x1)),
        branch7x7dbl_1(add("branch7x7dbl_1", in, inner)),
        branch7x7dbl_2(add("branch7x7dbl_2", inner, inner, k7x1)),
        branch7x7dbl_3(add("branch7x7dbl_3", inner, inner, k1x7)),
        branch7x7dbl_4(add("branch7x7dbl_4", inner, inner, k7x1)),
        branch7x7dbl_5(add("branch7x7dbl_5", inner, 192, k1x7)),
        branch_pool(add("branch_pool", in, 192)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto twice = branch7x7dbl_5(branch7x7dbl_4(branch7x7dbl_3(branch7x7dbl_2(branch7x7dbl_1(x)))));
    return torch::cat({branch1x1(x), branch7x7_3(branch7x7_2(branch7x7_1(x))), twice, branch_pool(averaged(x))}, 1);
  }

  ConvNorm branch1x1, branch7x7_1, branch7x7_2, branch7x7_3, branch7x7dbl_1, branch7x7dbl_2, branch7x7dbl_3,
      branch7x7dbl_4, branch7x7dbl_5, branch_pool;
};
TORCH_MODULE(C);

class DImpl : public ConvNormBlock {
 public:
  explicit DImpl(int64_t in)
      : branch3x3_1(add("branch3x3_1", in, 192)),
        branch3x3_2(add("branch3x3_2", 192, 320, k3x3Halving)),
        branch7x7x3_1(add("branch7x7x3_1", in, 192)),
        branch7x7x3_2(add("branch7x7x3_2", 192, 192, k1x7)),
        branch7x7x3_3(add("branch7x7x3_3", 192, 192, k7x1)),
        branch7x7x3_4(add("branch7x7x3_4", 192, 192, k3x3Halving)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::cat({branch3x3_2(branch3x3_1(x)), branch7x7x3_4(branch7x7x3_3(branch7x7x3_2(branch7x7x3_1(x)))),
                       torch::max_pool2d(x, 3, 2)},
                      1);
  }

  ConvNorm branch3x3_1, branch3x3_2, branch7x7x3_1, branch7x7x3_2, branch7x7x3_3, branch7x7x3_4;
};
TORCH_MODULE(D);

class EImpl : public ConvNormBlock {
 public:
  explicit EImpl(int64_t in)
      : branch1x1(add("branch1x1", in, 320)),
        branch3x3_1(add("branch3x3_1", in, 384)),
        branch3x3_2a(add("branch3x3_2a", 384, 384, k1x3)),
        branch3x3_2b(add("branch3x3_2b", 384, 384, k3x1)),
        branch3x3dbl_1(add("branch3x3dbl_1", in, 448)),
        branch3x3dbl_2(add("branch3x3dbl_2", 448, 384, k3x3)),
        branch3x3dbl_3a(add("branch3x3dbl_3a", 384, 384, k1x3)),
        branch3x3dbl_3b(add("branch3x3dbl_3b", 384, 384, k3x1)),
        branch_pool(add("branch_pool", in, 192)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto once = branch3x3_1(x);
    const auto twice = branch3x3dbl_2(branch3x3dbl_1(x));
    return torch::cat({branch1x1(x), branch3x3_2a(once), branch3x3_2b(once), branch3x3dbl_3a(twice),
                       branch3x3dbl_3b(twice), branch_pool(averaged(x))},
                      1);
  }

  ConvNorm branch1x1, branch3x3_1, branch3x3_2a, branch3x3_2b, branch3x3dbl_1, branch3x3dbl_2, branch3x3dbl_3a,
      branch3x3dbl_3b, branch_pool;
};
TORCH_MODULE(E);

class AuxImpl : public ConvNormBlock {
 public:
  AuxImpl(int64_t in, int64_t classes)
      : conv0(add("conv0", in, 128)),
        conv1(add("conv1", 128, 768, {.kernel = 5})),
        fc(register_module("fc", torch::nn::Linear(768, classes))) {}

  torch::Tensor forward(const torch::Tensor& x) { return fc(conv1(conv0(torch::avg_pool2d(x, 5, 3))).mean({2, 3})); }

  void initialize() {
    torch::nn::init::normal_(conv1->conv->weight, 0, 0.01);
    torch::nn::init::normal_(fc->weight, 0, 0.001);
  }

  ConvNorm conv0, conv1;
  torch::nn::Linear fc;
};
TORCH_MODULE(Aux);

}  // namespace models::inception
