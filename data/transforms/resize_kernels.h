// The loops of resize(): sums of weighted bytes, with the processor's vector instructions if it has them. All variants
// give the same bytes. No LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

/// Weights are integers with this many binary places: 32 bits less 8 bits of colour and 2 bits of headroom.
inline constexpr int kWeightPlaces = 32 - 8 - 2;

/// Which input pixels make one output pixel along an axis.
struct ResizeWindow {
  int64_t begin = 0;
  int64_t count = 0;
};

/// The weight of each input pixel.
struct ResizeWeights {
  std::vector<ResizeWindow> windows{};
  std::vector<int32_t> values{};  ///< `stride` for each window; zeros after the window's own
  int64_t stride = 0;             ///< even
  int64_t most = 0;               ///< weights of a window
};

struct ResizeKernels {
  /// Makes one row of RGB pixels of `row`. May read kReadAfter bytes after the last pixel of the last window.
  void (*across)(const uint8_t* row, const ResizeWeights& weights, std::span<const int32_t> spread, uint8_t* out);
  /// Makes one row of `bytes` bytes of the rows from `first` on, which are `bytes` apart.
  void (*down)(const uint8_t* first, int64_t bytes, std::span<const int32_t> weights, uint8_t* out);
  /// Returns the weights in the form that across() needs; null if it needs none.
  std::vector<int32_t> (*spread)(const ResizeWeights& weights) = nullptr;
};

inline constexpr int64_t kReadAfter = 28;

/// The fastest that this processor has.
const ResizeKernels& resize_kernels();
/// For every processor.
const ResizeKernels& portable_resize_kernels();

}  // namespace ddp
