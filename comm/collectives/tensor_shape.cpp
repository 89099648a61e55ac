#include "comm/collectives/tensor_shape.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include <ddprun/comm/collectives.h>

#include "comm/group/argument_checks.h"

namespace ddp::detail {
namespace {

constexpr int64_t kMaxDims = 16;

at::Tensor encode(const at::Tensor& tensor) {
  at::Tensor code = at::zeros({2 + kMaxDims}, at::kLong);
  auto* values = code.data_ptr<int64_t>();
  values[0] = static_cast<int64_t>(tensor.scalar_type());
  values[1] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), values + 2);
  return code;
}

TensorShape decode(const int64_t* values) {
  return {.dtype = static_cast<at::ScalarType>(values[0]),
          .sizes = std::vector<int64_t>(values + 2, values + 2 + values[1])};
}

bool are_compatible(const TensorShape& a, const TensorShape& b) {
  return a.dtype == b.dtype && a.sizes.size() == b.sizes.size() &&
         std::equal(a.sizes.begin() + 1, a.sizes.end(), b.sizes.begin() + 1);
}

std::string text(const TensorShape& shape) {
  std::ostringstream stream;
  stream << shape.dtype << " tensor of shape " << at::IntArrayRef(shape.sizes);
  return stream.str();
}

}  // namespace

std::vector<TensorShape> all_gather_shapes(const at::Tensor& tensor, const char* operation, const GroupHandle& group,
                                           const CollectiveOptions& options) {
  if (tensor.dim() == 0 || tensor.dim() > kMaxDims) {
    refuse(group, operation, "expected 1 to " + std::to_string(kMaxDims) + " dimensions, got a " + describe(tensor));
  }
  const at::Tensor codes = all_gather(encode(tensor).to(host_value_device(group)), group, options).cpu();
  std::vector<TensorShape> shapes;
  for (int rank = 0; rank < group.size(); ++rank) {
    shapes.push_back(decode(codes.data_ptr<int64_t>() + rank * (2 + kMaxDims)));
    if (are_compatible(shapes[0], shapes.back())) continue;
    throw std::runtime_error(who(group.info()) + ": " + operation +
                             ": the ranks' tensors may differ in the first dimension only, but rank 0 has a " +
                             text(shapes[0]) + " and rank " + std::to_string(rank) + " a " + text(shapes.back()));
  }
  return shapes;
}

}  // namespace ddp::detail
