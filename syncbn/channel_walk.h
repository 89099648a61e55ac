// Internal: where the values of a channel lie in a dense tensor (N, C, …), in either memory format.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace ddp::detail {

/// A dense input of batch norm: `samples` times `channels` times `pixels` values.
struct ChannelWalk {
  /// Values that a thread should get at least: LibTorch's own choice for cheap loops.
  static constexpr int64_t kTaskValues = int64_t{1} << 15;

  /// `x` has two to five dimensions, at least one value, and is contiguous in its suggested memory format.
  explicit ChannelWalk(const at::Tensor& x)
      : samples(x.size(0)),
        channels(x.size(1)),
        pixels(x.numel() / samples / channels),
        rows(pixels == 1 || !x.is_contiguous()) {}

  int64_t values() const { return samples * pixels; }  ///< per channel

  /// How many values per channel a task should have. Depends on the shape alone.
  int64_t values_per_task() const { return rows ? std::max<int64_t>(1, kTaskValues / channels) : kTaskValues; }

  /// Calls `f(offset, length)` for each run of consecutive values from number `begin` to `end` of channel `c`, in a
  /// tensor that is not `rows`.
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
  bool rows;  ///< the channels of a pixel are neighbours (channels last): values() rows of `channels` numbers
};

}  // namespace ddp::detail
