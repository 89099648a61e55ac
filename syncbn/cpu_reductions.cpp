#include "syncbn/cpu_reductions.h"

#include <ATen/Parallel.h>

#include <array>
#include <utility>
#include <vector>

#include "syncbn/channel_walk.h"
#include "syncbn/element_types.h"
#include "syncbn/gather_stats.h"

namespace ddp::detail {
namespace {

// Shorter runs are gathered first: each call of a kernel has its own start and end.
constexpr int64_t kShortRun = 128;
constexpr int64_t kGathered = 1024;

// A reduction is cut into tasks of a fixed size, each with a partial result per channel, combined in the tasks' order.
class Tasks {
 public:
  explicit Tasks(const ChannelWalk& walk) : walk_(walk), values_(walk.values_per_task()) {}

  int64_t count() const { return (walk_.values() + values_ - 1) / values_; }
  int64_t begin(int64_t task) const { return task * values_; }
  int64_t end(int64_t task) const { return std::min(walk_.values(), (task + 1) * values_); }

  /// Calls `f(task)` for all tasks, where one task does all channels.
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

// Calls `f(pointers, length)` for values begin … end of a channel, in long runs. `from` are tensors with equal strides.
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
  const int64_t stride = 1 + 2 * channels;  // as gather_stats() wants it: count, means, sums of squared deviations
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
  for (int64_t c = 0; c < channels; ++c) m2[c] *= count;  // from the variance
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

}  // namespace ddp::detail
