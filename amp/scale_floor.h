// The minimum of a dynamic loss scale. It prevents the scale from being halved to 0 if all steps overflow. This class
// also prints the warnings that the scale was reduced to the floor or that a loaded scale is below it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <limits>
#include <optional>
#include <string>

namespace ddp::amp::detail {

/// A scale within these limits is a float32 number with a finite reciprocal.
constexpr double kMinScale = std::numeric_limits<float>::min();
constexpr double kMaxScale = std::numeric_limits<float>::max();

inline bool is_scale(double value) {
  return value >= kMinScale && value <= kMaxScale;
}

class ScaleFloor {
 public:
  /// The warning begins with `what`, which names the scale and the rank.
  ScaleFloor(double value, std::string what);

  double value() const { return value_; }

  /// Called when the host has set the scale to `scale`.
  void begin_at(double scale);

  /// Called when the scale was set to a number that only the device knows. A scale at the floor then does not indicate
  /// an overflow until check() has seen it above the floor.
  void begin_at_unknown();

  /// Warns that a loaded state has the scale `loaded`, which is below the floor. Every call prints a warning.
  void warn_of_raised(double loaded) const;

  /// Called after each update of `scale` (float32) and `tracker` (int32, good steps since the scale changed), which are
  /// on one device. Warns once if `scale` was reduced to the floor. On the CPU, it warns in this call. For other
  /// devices, the host does not wait: every 16th call starts a copy of both tensors, and a call after the copy has
  /// completed warns.
  void check(const at::Tensor& scale, const at::Tensor& tracker);

  /// The same for a scale that the host has already read.
  void check(double scale);

 private:
  void warn_if_at_floor(double scale, bool after_overflow);
  void begin_copy(const at::Tensor& scale, const at::Tensor& tracker);

  double value_;
  std::string what_;
  bool starts_above_floor_ = true;
  bool has_warned_ = false;
  int calls_ = 0;
  at::Tensor scale_{};    // pinned copies
  at::Tensor tracker_{};  // pinned as well
  std::optional<c10::Event> arrived_{};
};

}  // namespace ddp::amp::detail
