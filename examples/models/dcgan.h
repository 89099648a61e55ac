// DCGAN (Radford, Metz and Chintala 2016) for pictures of 32 pixels: a net that makes pictures of noise, and one that
// tells them from real ones. Names as in PyTorch's own example, whose pictures have 64 pixels.
#pragma once

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

namespace models {

struct DcganOptions {
  int64_t noise = 64;  ///< numbers that a picture is made of
  int64_t width = 16;  ///< channels next to the picture
};

inline torch::nn::Conv2d halving(int64_t in, int64_t out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false));
}

inline torch::nn::ConvTranspose2d doubling(int64_t in, int64_t out) {
  return torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(false));
}

/// Normal weights of deviation 0.02, norms around 1.
inline void initialize_dcgan(torch::nn::Module& net) {
  for (auto& parameter : net.named_parameters()) {
    const bool is_norm = parameter.value().dim() == 1;
    if (is_norm && parameter.key().ends_with("bias")) {
      torch::nn::init::zeros_(parameter.value());
    } else {
      torch::nn::init::normal_(parameter.value(), is_norm ? 1.0 : 0.0, 0.02);
    }
  }
}

/// [batch, noise, 1, 1] -> [batch, 3, 32, 32] within -1 and 1.
struct GeneratorImpl : torch::nn::Module {
  explicit GeneratorImpl(const DcganOptions& options = {}) {
    const auto width = options.width;
    main = register_module(
        "main",
        torch::nn::Sequential(
            torch::nn::ConvTranspose2d(
                torch::nn::ConvTranspose2dOptions(options.noise, 4 * width, 4).stride(1).padding(0).bias(false)),
            torch::nn::BatchNorm2d(4 * width), torch::nn::ReLU(), doubling(4 * width, 2 * width),
            torch::nn::BatchNorm2d(2 * width), torch::nn::ReLU(), doubling(2 * width, width),
            torch::nn::BatchNorm2d(width), torch::nn::ReLU(), doubling(width, 3), torch::nn::Tanh()));
    initialize_dcgan(*this);
  }
  torch::Tensor forward(const torch::Tensor& noise) { return main->forward(noise); }
  torch::nn::Sequential main{nullptr};
};
TORCH_MODULE(Generator);

/// [batch, 3, 32, 32] -> [batch]: logits, above 0 for what it takes for real.
struct DiscriminatorImpl : torch::nn::Module {
  explicit DiscriminatorImpl(const DcganOptions& options = {}) {
    const auto width = options.width;
    const auto leaky = [] { return torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)); };
    main = register_module(
        "main", torch::nn::Sequential(
                    halving(3, width), leaky(), halving(width, 2 * width), torch::nn::BatchNorm2d(2 * width), leaky(),
                    halving(2 * width, 4 * width), torch::nn::BatchNorm2d(4 * width), leaky(),
                    torch::nn::Conv2d(torch::nn::Conv2dOptions(4 * width, 1, 4).stride(1).padding(0).bias(false))));
    initialize_dcgan(*this);
  }
  torch::Tensor forward(const torch::Tensor& pictures) { return main->forward(pictures).flatten(); }
  torch::nn::Sequential main{nullptr};
};
TORCH_MODULE(Discriminator);

}  // namespace models
