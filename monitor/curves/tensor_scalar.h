// Scalars that are written as tensors, as TensorFlow 2 and what is built on it do.
#pragma once

#include <optional>
#include <string_view>

namespace ddp::curves {

/// The number in a TensorProto with one element of a real dtype: float, double, half, bfloat16, bool or whole numbers;
/// nothing for any other tensor. Throws std::runtime_error where the bytes are no message. Reference: TensorFlow's
/// tensor.proto and types.proto.
std::optional<double> scalar_of_tensor(std::string_view tensor);

}  // namespace ddp::curves
