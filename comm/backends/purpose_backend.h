// Internal: backends whose messages say what a collective is for, see call_purpose.h.
#pragma once

#include <cstdint>

namespace ddp::detail {

/// Its collectives with different purposes do not receive each other's messages: a rank that calls the gradient of
/// another collective waits until the timeout instead of adding up what does not belong together.
class PurposeBackend {
 public:
  virtual ~PurposeBackend() = default;

  /// Sets the purpose of all collectives that are started from now on; 0 means no particular purpose. All ranks of the
  /// group must support it.
  virtual void set_call_purpose(uint16_t purpose) = 0;
};

/// While it lives, the collectives that `backend` starts have `purpose`; nothing if it is null.
class BackendPurposeScope {
 public:
  BackendPurposeScope(PurposeBackend* backend, uint16_t purpose) : backend_(backend) {
    if (backend_ != nullptr) backend_->set_call_purpose(purpose);
  }
  ~BackendPurposeScope() {
    if (backend_ != nullptr) backend_->set_call_purpose(0);
  }
  BackendPurposeScope(const BackendPurposeScope&) = delete;
  BackendPurposeScope& operator=(const BackendPurposeScope&) = delete;

 private:
  PurposeBackend* const backend_;
};

}  // namespace ddp::detail
