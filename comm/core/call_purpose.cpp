#include "comm/core/call_purpose.h"

#include <utility>

namespace ddp::detail {
namespace {

thread_local uint16_t current = 0;

}  // namespace

CallPurposeScope::CallPurposeScope(uint16_t purpose) noexcept : before_(std::exchange(current, purpose)) {}

CallPurposeScope::~CallPurposeScope() {
  current = before_;
}

uint16_t thread_call_purpose() noexcept {
  return current;
}

}  // namespace ddp::detail
