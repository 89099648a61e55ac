#include "syncbn/cpu_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "syncbn/element_types.h"
#include "syncbn/gather_stats.h"

namespace ddp::detail {
namespace {

/// Describes a dense input of batch norm, which has `samples` times `channels` times `pixels` values.
struct ChannelWalk {
  /// The minimum number of values per thread, which is LibTorch's choice for cheap loops.
  static constexpr int64_t kTaskValues = int64_t{1} << 15;

  /// `x` has two to five dimensions, at least one value, and is contiguous in its suggested memory format.
  explicit ChannelWalk(const at::Tensor& x)
      : samples(x.size(0)),
        channels(x.size(1)),
        pixels(x.numel() / samples / channels),
        rows(pixels == 1 || !x.is_contiguous()) {}

  int64_t values() const { return samples * pixels; }  ///< per channel

  /// The number of values per channel that a task should process. It depends on the shape alone.
  int64_t values_per_task() const { return rows ? std::max<int64_t>(1, kTaskValues / channels) : kTaskValues; }

  /// Calls `f(offset, length)` for each run of consecutive values from number `begin` to `end` of channel `c`. The
  /// tensor must not be in `rows`.
  template <typename F>
  void for_each_run(int64_t c, int64_t begin, int64_t end, F f) const {
    for (int64_t at = begin; at < end;) {
      const int64_t pixel = at % pixels;
      const int64_t length = std::min(pixels - pixel, end - at);
      f((at / pixels * channels + c) * pixels + pixel, length);
      at += length;
    }
  }

  int64_t samples;
  int64_t channels;
  int64_t pixels;
  bool rows;  ///< whether the channels of a pixel are adjacent (channels last): values() rows of `channels` numbers
};

// Calls `run(channel, offset, length)` for runs of one channel, or `rows(offset, count)` for rows of all channels,
// until the whole tensor is processed.
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

// `center` is the mean, rounded to the computing type. The rounding error times `scale` is added to the shift, because
// it would be visible with a large mean.
template <typename A>
std::vector<A> corrected_shift(const double* mean, const std::vector<A>& center, const std::vector<double>& scale,
                               const std::vector<double>& shift) {
  std::vector<A> result(shift.size());
  for (size_t c = 0; c < shift.size(); ++c)
    result[c] = static_cast<A>(shift[c] - (mean[c] - static_cast<double>(center[c])) * scale[c]);
  return result;
}

// Shorter runs are first copied into longer ones, since each call of a kernel has a fixed cost.
constexpr int64_t kShortRun = 128;
constexpr int64_t kGathered = 1024;

// Divides a reduction into tasks of a fixed size. Each task has a partial result per channel, and these are combined in
// the order of the tasks.
class Tasks {
 public:
  explicit Tasks(const ChannelWalk& walk) : walk_(walk), values_(walk.values_per_task()) {}

  int64_t count() const { return (walk_.values() + values_ - 1) / values_; }
  int64_t begin(int64_t task) const { return task * values_; }
  int64_t end(int64_t task) const { return std::min(walk_.values(), (task + 1) * values_); }

  /// Calls `f(task)` for all tasks, if one task computes all channels.
  template <typename F>
  void run(F f) const {
    at::parallel_for(0, count(), 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) f(task);
    });
  }
  /// Calls `f(task, channel)` for all tasks and channels.
  template <typename F>
  void run_per_channel(F f) const {
    at::parallel_for(0, count() * walk_.channels, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) f(i / walk_.channels, i % walk_.channels);
    });
  }

 private:
  const ChannelWalk& walk_;
  int64_t values_;  // per channel
};

// Calls `f(pointers, length)` for the values from `begin` to `end` of a channel, in long runs. The tensors in `from`
// have equal strides.
template <typename T, size_t K, typename F>
void for_long_runs(const ChannelWalk& walk, int64_t c, int64_t begin, int64_t end, const std::array<const T*, K>& from,
                   F f) {
  std::array<const T*, K> run;
  if (walk.pixels >= kShortRun) {
    walk.for_each_run(c, begin, end, [&](int64_t offset, int64_t length) {
      for (size_t k = 0; k < K; ++k) run[k] = from[k] + offset;
      f(run, length);
    });
    return;
  }
  T gathered[K][kGathered];
  for (size_t k = 0; k < K; ++k) run[k] = gathered[k];
  int64_t filled = 0;
  walk.for_each_run(c, begin, end, [&](int64_t offset, int64_t length) {
    if (filled + length > kGathered) f(run, std::exchange(filled, 0));
    for (size_t k = 0; k < K; ++k) std::copy_n(from[k] + offset, length, gathered[k] + filled);
    filled += length;
  });
  if (filled > 0) f(run, filled);
}

template <typename T>
void moments(const SimdKernels<T>& kernels, const ChannelWalk& walk, const T* x, double* mean, double* m2) {
  const Tasks tasks(walk);
  const int64_t channels = walk.channels;
  const int64_t stride = 1 + 2 * channels;  // row format of gather_stats(): count, means, squared deviations
  std::vector<double> partial(static_cast<size_t>(tasks.count() * stride));
  if (walk.rows) {
    tasks.run([&](int64_t task) {
      double* row = partial.data() + task * stride;
      const int64_t begin = tasks.begin(task);
      const int64_t count = tasks.end(task) - begin;
      row[0] = static_cast<double>(count);
      kernels.row_moments(x + begin * channels, count, channels, channels, 0, row + 1, row + 1 + channels);
    });
  } else {
    tasks.run_per_channel([&](int64_t task, int64_t c) {
      Moments result;
      for_long_runs<T, 1>(walk, c, tasks.begin(task), tasks.end(task), {x},
                          [&](const auto& run, int64_t length) { kernels.run_moments(run[0], length, result); });
      double* row = partial.data() + task * stride;
      if (c == 0) row[0] = result.count;
      row[1 + c] = result.mean;
      row[1 + channels + c] = result.m2;
    });
  }
  const double count = gather_stats(partial.data(), tasks.count(), stride, channels, mean, m2);
  for (int64_t c = 0; c < channels; ++c) m2[c] *= count;  // from the variance to the sum of squared deviations
}

template <typename T>
void gradient_sums(const SimdKernels<T>& kernels, const ChannelWalk& walk, const T* dy, const T* x, const double* mean,
                   double* sum_dy, double* sum_dy_xmu) {
  const Tasks tasks(walk);
  const int64_t channels = walk.channels;
  std::vector<double> partial(static_cast<size_t>(tasks.count() * 2 * channels));
  if (walk.rows) {
    tasks.run([&](int64_t task) {
      double* sums = partial.data() + task * 2 * channels;
      const int64_t begin = tasks.begin(task);
      kernels.row_sums(dy + begin * channels, x + begin * channels, tasks.end(task) - begin, channels, channels, mean,
                       sums, sums + channels);
    });
  } else {
    tasks.run_per_channel([&](int64_t task, int64_t c) {
      GradientSums result;
      for_long_runs<T, 2>(walk, c, tasks.begin(task), tasks.end(task), {dy, x}, [&](const auto& run, int64_t length) {
        kernels.run_sums(run[0], run[1], length, mean[c], result);
      });
      double* sums = partial.data() + task * 2 * channels;
      sums[c] = result.dy;
      sums[channels + c] = result.dy_xmu;
    });
  }
  std::fill_n(sum_dy, channels, 0.0);
  std::fill_n(sum_dy_xmu, channels, 0.0);
  for (int64_t task = 0; task < tasks.count(); ++task) {
    const double* sums = partial.data() + task * 2 * channels;
    for (int64_t c = 0; c < channels; ++c) {
      sum_dy[c] += sums[c];
      sum_dy_xmu[c] += sums[channels + c];
    }
  }
}

}  // namespace

void channel_moments(const SimdLevel& level, const at::Tensor& x, double* mean, double* m2) {
  for_element_type(x.scalar_type(),
                   [&]<typename T>(T) { moments<T>(level.kernels<T>(), ChannelWalk(x), read<T>(x), mean, m2); });
}

void channel_gradient_sums(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                           double* sum_dy, double* sum_dy_xmu) {
  for_element_type(x.scalar_type(), [&]<typename T>(T) {
    gradient_sums<T>(level.kernels<T>(), ChannelWalk(x), read<T>(dy), read<T>(x), mean, sum_dy, sum_dy_xmu);
  });
}

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
