// The inner loops of resize(): weighted sums of bytes, with vector instructions if the processor has them. All variants
// give the same bytes. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

/// Weights are integers with this many binary places: 32 bits, minus 8 bits of colour and 2 bits of headroom.
inline constexpr int kWeightFractionBits = 32 - 8 - 2;

/// The input pixels that contribute to one output pixel along an axis.
struct ResizeWindow {
  int64_t begin = 0;
  int64_t count = 0;
};

/// The weights of the input pixels of all windows.
struct ResizeWeights {
  std::vector<ResizeWindow> windows{};
  std::vector<int32_t> values{};  ///< `stride` values per window; those after the weights of the window are zero
  int64_t stride = 0;             ///< even
  int64_t most = 0;               ///< the largest number of weights of a window
};

struct ResizeKernels {
  /// Makes one row of RGB pixels from `row`. May read up to kOverreadBytes bytes beyond the last pixel of the last
  /// window.
  void (*across)(const uint8_t* row, const ResizeWeights& weights, std::span<const int32_t> spread, uint8_t* out);
  /// Makes one row of `bytes` bytes from the rows that begin at `first` and are `bytes` apart.
  void (*down)(const uint8_t* first, int64_t bytes, std::span<const int32_t> weights, uint8_t* out);
  /// Returns the weights in the form that across() needs. The pointer is null if no conversion is needed.
  std::vector<int32_t> (*spread)(const ResizeWeights& weights) = nullptr;
};

inline constexpr int64_t kOverreadBytes = 28;

/// Returns the fastest kernels that this processor supports.
const ResizeKernels& resize_kernels();
/// Returns the kernels that every processor supports.
const ResizeKernels& portable_resize_kernels();

}  // namespace ddp
