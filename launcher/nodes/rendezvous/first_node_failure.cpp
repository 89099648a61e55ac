#include "launcher/nodes/rendezvous/first_node_failure.h"

namespace launcher {

void FirstNodeFailure::add(const FailureNotice& notice) {
  const bool is_first = !first_ || (notice.is_consequence != first_->is_consequence ? first_->is_consequence
                                                                                    : notice.time < first_->time);
  if (is_first) first_ = notice;
}

}  // namespace launcher
