#include "syncbn/cpu_elementwise.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include "syncbn/channel_walk.h"
#include "syncbn/element_types.h"

namespace ddp::detail {
namespace {

// Calls `run(channel, offset, length)` for runs of one channel, or `rows(offset, count)` for rows of all channels,
// until the whole tensor is done.
template <typename Run, typename Rows>
void for_each_part(const ChannelWalk& walk, Run run, Rows rows) {
  if (walk.rows) {
    at::parallel_for(0, walk.values(), walk.values_per_task(),
                     [&](int64_t first, int64_t last) { rows(first * walk.channels, last - first); });
    return;
  }
  const int64_t planes_per_task = std::max<int64_t>(1, ChannelWalk::kTaskValues / walk.pixels);
  at::parallel_for(0, walk.samples * walk.channels, planes_per_task, [&](int64_t first, int64_t last) {
    for (int64_t plane = first; plane < last; ++plane) run(plane % walk.channels, plane * walk.pixels, walk.pixels);
  });
}

template <typename A>
std::vector<A> rounded(const double* values, size_t count) {
  std::vector<A> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = static_cast<A>(values[i]);
  return result;
}

// The mean in the computing type is `center`; what of it does not fit is multiplied by `scale` here and goes into the
// shift: beside a large mean it would be a visible error.
template <typename A>
std::vector<A> corrected_shift(const double* mean, const std::vector<A>& center, const std::vector<double>& scale,
                               const std::vector<double>& shift) {
  std::vector<A> result(shift.size());
  for (size_t c = 0; c < shift.size(); ++c)
    result[c] = static_cast<A>(shift[c] - (mean[c] - static_cast<double>(center[c])) * scale[c]);
  return result;
}

}  // namespace

at::Tensor apply_affine(const SimdLevel& level, const at::Tensor& x, const double* mean,
                        const std::vector<double>& scale, const std::vector<double>& shift) {
  at::Tensor y = at::empty_like(x);
  for_element_type(x.scalar_type(), [&]<typename T>(T) {
    using A = typename Compute<T>::Type;
    const ChannelWalk walk(x);
    const auto& kernels = level.kernels<T>();
    const auto center = rounded<A>(mean, scale.size());
    const auto scales = rounded<A>(scale.data(), scale.size());
    const auto shifts = corrected_shift<A>(mean, center, scale, shift);
    const T* from = read<T>(x);
    T* to = write<T>(y);
    for_each_part(
        walk,
        [&](int64_t channel, int64_t offset, int64_t length) {
          const auto c = static_cast<size_t>(channel);
          kernels.run_normalize(from + offset, to + offset, length, {center[c], scales[c], shifts[c]});
        },
        [&](int64_t offset, int64_t rows) {
          kernels.row_normalize(from + offset, to + offset, rows, walk.channels, walk.channels, center.data(),
                                scales.data(), shifts.data());
        });
  });
  return y;
}

at::Tensor apply_gradient_affine(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                                 const std::vector<double>& dy_scale, const std::vector<double>& x_scale,
                                 const std::vector<double>& shift) {
  at::Tensor dx = at::empty_like(x);
  for_element_type(x.scalar_type(), [&]<typename T>(T) {
    using A = typename Compute<T>::Type;
    const ChannelWalk walk(x);
    const auto& kernels = level.kernels<T>();
    const auto center = rounded<A>(mean, shift.size());
    const auto dy_scales = rounded<A>(dy_scale.data(), shift.size());
    const auto x_scales = rounded<A>(x_scale.data(), shift.size());
    const auto shifts = corrected_shift<A>(mean, center, x_scale, shift);
    const T* gradients = read<T>(dy);
    const T* values = read<T>(x);
    T* to = write<T>(dx);
    for_each_part(
        walk,
        [&](int64_t channel, int64_t offset, int64_t length) {
          const auto c = static_cast<size_t>(channel);
          kernels.run_gradient(gradients + offset, values + offset, to + offset, length,
                               {center[c], dy_scales[c], x_scales[c], shifts[c]});
        },
        [&](int64_t offset, int64_t rows) {
          kernels.row_gradient(gradients + offset, values + offset, to + offset, rows, walk.channels, walk.channels,
                               center.data(), dy_scales.data(), x_scales.data(), shifts.data());
        });
  });
  return dx;
}

}  // namespace ddp::detail
