// What the calling thread's next collectives are for, which backends of ours compare over the ranks beside operation
// and size: two sums of equal size for different gradients must not be taken for one another. Does not use LibTorch.
#pragma once

#include <cstdint>

namespace ddp::detail {

/// While it lives, the calling thread's collectives have `purpose`. May be nested.
class CallPurposeScope {
 public:
  explicit CallPurposeScope(uint16_t purpose) noexcept;
  ~CallPurposeScope();
  CallPurposeScope(const CallPurposeScope&) = delete;
  CallPurposeScope& operator=(const CallPurposeScope&) = delete;

 private:
  const uint16_t before_;
};

/// That of the innermost scope that lives in the calling thread; 0 without one.
uint16_t thread_call_purpose() noexcept;

/// Of the gradient of collective `number`, which differs from those of the gradients of calls before and after it.
constexpr uint16_t purpose_of_gradient(uint64_t number) {
  return static_cast<uint16_t>(1 + number % 65535);
}

}  // namespace ddp::detail
