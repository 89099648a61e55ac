// Internal: what made a reduction fail on this rank.
#pragma once

#include <mutex>
#include <string>

namespace ddp::detail {

/// The first failure of a reduction on this rank; written by whichever thread sees it.
class ReductionFailure {
 public:
  void set(const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (message_.empty()) message_ = message;
  }
  std::string get() const {
    const std::lock_guard lock(mutex_);
    return message_;
  }

 private:
  mutable std::mutex mutex_;
  std::string message_;
};

}  // namespace ddp::detail
