// The least value of a dynamic loss scale, which keeps steps that all overflow from halving the scale to 0, and the
// warnings that the scale was reduced to the floor or that a loaded scale is below it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <limits>
#include <optional>
#include <string>

namespace ddp::amp::detail {

/// Scales within these limits are float32 numbers with a finite reciprocal.
constexpr double kSmallestScale = std::numeric_limits<float>::min();
constexpr double kLargestScale = std::numeric_limits<float>::max();

inline bool is_scale(double value) {
  return value >= kSmallestScale && value <= kLargestScale;
}

class ScaleFloor {
 public:
  /// `what` begins the warning: whose scale it is, with the rank.
  ScaleFloor(double value, std::string what);

  double value() const { return value_; }

  /// The host has set the scale to this.
  void begin_at(double scale);

  /// The scale was set to a number that only the device knows. Until look() sees it above the floor, a scale at the
  /// floor is not a sign of an overflow.
  void begin_at_unknown();

  /// Warns that a loaded state has the scale `loaded`, which is below the floor. Each call warns.
  void warn_of_raised(double loaded) const;

  /// After each update of `scale` (float32) and `tracker` (int32, good steps since the scale changed), on one device:
  /// warns once when `scale` was reduced to the floor. On the CPU in this call. On other devices the host does not
  /// wait: both are copied in every 16th call, and the warning comes from a call after the copy has arrived.
  void look(const at::Tensor& scale, const at::Tensor& tracker);

  /// The same, where the host has read a scale anyway.
  void look(double scale);

 private:
  void judge(double scale, bool after_overflow);
  void begin_copy(const at::Tensor& scale, const at::Tensor& tracker);

  double value_;
  std::string what_;
  bool begins_above_ = true;
  bool has_warned_ = false;
  int calls_ = 0;
  at::Tensor scale_{};    // pinned copies
  at::Tensor tracker_{};  // likewise
  std::optional<c10::Event> arrived_{};
};

}  // namespace ddp::amp::detail
