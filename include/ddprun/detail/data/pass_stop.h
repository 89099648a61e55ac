// How threads that read for a pass learn that the loader has ended the pass. No LibTorch.
#pragma once

#include <stop_token>
#include <utility>

namespace ddp::detail {

/// Of the pass that the calling thread reads samples for; without one, a token that never asks for a stop.
inline std::stop_token& pass_stop() {
  static thread_local std::stop_token token;
  return token;
}

/// While it lives, the calling thread reads for a pass.
class PassStopScope {
 public:
  explicit PassStopScope(std::stop_token token) : before_(std::exchange(pass_stop(), std::move(token))) {}
  ~PassStopScope() { pass_stop() = std::move(before_); }
  PassStopScope(const PassStopScope&) = delete;
  PassStopScope& operator=(const PassStopScope&) = delete;

 private:
  std::stop_token before_;
};

}  // namespace ddp::detail
