// What writers and bars read of a tensor, without knowing LibTorch: the programs that have tensors include it
// themselves.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include <ddprun/monitor/images.h>

namespace ddp {

/// at::Tensor, on any device.
template <typename T>
concept TensorLike = requires(const T& tensor) {
  {tensor.template item<double>()};
  tensor.detach().cpu().contiguous();
  tensor.scalar_type();
  tensor.sizes();
};

namespace detail {

/// The values in float32, contiguous on the CPU. The host waits for the device.
template <TensorLike Tensor>
Tensor host_floats(const Tensor& tensor) {
  return tensor.detach().to(tensor.options().template dtype<float>()).cpu().contiguous();
}

template <TensorLike Tensor>
std::span<const float> floats_of(const Tensor& host) {
  return {host.template const_data_ptr<float>(), static_cast<size_t>(host.numel())};
}

/// Calls `use` with a view of the images, (N, C, H, W), (C, H, W) or (H, W): of uint8 as they are, else as floats.
template <TensorLike Tensor, typename Use>
void with_images(const Tensor& images, Use use) {
  if (images.dim() < 2 || images.dim() > 4) {
    throw std::invalid_argument("images: expected the shape (N, C, H, W), (C, H, W) or (H, W), got " +
                                std::to_string(images.dim()) + " dimensions");
  }
  const auto size = [&](int64_t from_end) { return from_end > images.dim() ? 1 : images.size(-from_end); };
  const auto view = [&](auto pixels) {
    using Pixel = typename decltype(pixels)::value_type;
    use(ImagesView<Pixel>{
        .pixels = pixels, .count = size(4), .channels = size(3), .height = size(2), .width = size(1)});
  };
  if (images.scalar_type() == decltype(images.scalar_type())::Byte) {
    const Tensor host = images.detach().cpu().contiguous();
    view(std::span<const uint8_t>(host.template const_data_ptr<uint8_t>(), static_cast<size_t>(host.numel())));
  } else {
    const Tensor host = host_floats(images);
    view(floats_of(host));
  }
}

}  // namespace detail
}  // namespace ddp
