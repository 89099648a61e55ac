// Internal: all ranks reduce through the same communication hook, which is compared in the first backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

#include "comm/reducer/logged_collective.h"
#include "comm/reducer/reduction_failure.h"

namespace ddp::detail {

/// What this rank reduces through. Different hooks send buckets of other sizes or dtypes, which nothing on the wire
/// reports it: sums would be wrong, or gloo would end the process. Used by one thread at a time.
class HookAgreement {
 public:
  /// This rank's hook from now on, by its name. To be compared again.
  void set(std::string name);
  const std::string& name() const { return name_; }  ///< "" without a hook

  /// Compares the names with the other ranks' by one small all-gather, once after each set() and once without. Every
  /// rank must call it before it reduces anything, in the same place among its collectives of the group. Throws
  /// std::runtime_error on every rank when they differ, and writes it into `note`. Waits for the others for a short
  /// while only, since ranks may reduce models of other groups in another order: true if finish_comparison() has to be
  /// called before the sums are used. Where ranks run Python nothing is compared.
  bool begin(const GroupHandle& group, const std::shared_ptr<ReductionFailure>& note);
  /// Waits for what begin() has started, if it has not ended. Throws as begin().
  void finish_comparison();

 private:
  struct Comparison {
    GroupHandle group;
    std::shared_ptr<ReductionFailure> note;
    LoggedCollective collective;
    at::Tensor names;
    WorkPtr work;
  };

  void compare(const Comparison& comparison) const;

  std::string name_;
  bool has_begun_ = false;
  std::optional<Comparison> under_way_;
};

/// Who differs from whom, of the names by rank; "" when all are equal. With a majority: the first rank that differs
/// from it.
std::string hook_difference(const std::vector<std::string>& names);

}  // namespace ddp::detail
