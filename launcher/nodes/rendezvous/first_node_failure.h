// Which of the failures that the nodes report came first. Pure.
#pragma once

#include <optional>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

class FirstNodeFailure {
 public:
  // `notice` has the coordinator's time.
  void add(const FailureNotice& notice);
  // A failure that is nobody else's consequence is known.
  bool has_cause() const { return first_ && !first_->is_consequence; }
  // The first of them, or of the consequences when there are only those.
  const std::optional<FailureNotice>& first() const { return first_; }

 private:
  std::optional<FailureNotice> first_;
};

}  // namespace launcher
