// Reads the values of tensors for writers and progress bars. This header does not include LibTorch; a program that uses
// tensors includes it.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include <ddprun/monitor/summary_values.h>

namespace ddp {

/// Satisfied by at::Tensor, on any device.
template <typename T>
concept TensorLike = requires(const T& tensor) {
  {tensor.template item<double>()};
  tensor.detach().cpu().contiguous();
  tensor.scalar_type();
  tensor.sizes();
};

namespace detail {

/// Calls `use` with the values as a span of `Number`. They are converted if the tensor has another dtype. The host
/// waits for the device.
template <typename Number, TensorLike Tensor, typename Use>
void with_numbers_as(const Tensor& tensor, Use use) {
  const Tensor host = tensor.detach().to(tensor.options().template dtype<Number>()).cpu().contiguous();
  use(std::span<const Number>(host.template const_data_ptr<Number>(), static_cast<size_t>(host.numel())));
}

/// Calls `use` with the values as a span of float, int64_t or double: the type that represents the tensor's dtype
/// exactly (complex values lose their imaginary part). The host waits for the device.
template <TensorLike Tensor, typename Use>
void with_numbers(const Tensor& tensor, Use use) {
  using Type = decltype(tensor.scalar_type());
  switch (tensor.scalar_type()) {
    case Type::Float:
    case Type::Half:
    case Type::BFloat16:
      return with_numbers_as<float>(tensor, use);
    case Type::Long:
      return with_numbers_as<int64_t>(tensor, use);
    default:
      return with_numbers_as<double>(tensor, use);
  }
}

/// Calls `use` with a view of the images, (N, C, H, W), (C, H, W) or (H, W). uint8 images are used unchanged; others
/// are converted to float.
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
    with_numbers_as<uint8_t>(images, view);
  } else {
    with_numbers_as<float>(images, view);
  }
}

}  // namespace detail
}  // namespace ddp
