// The memory into which one rank writes its timeline: without a name, and gone with those who have it.
#pragma once

#include <memory>

#include "base/timeline/collector.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/options.h"

namespace launcher {

class RankRing {
 public:
  // Without memory where the kernel has none to give; then nothing of the rank is recorded.
  explicit RankRing(const ddp::detail::RecordingPlan& plan);

  // For the rank alone; -1 when there is no memory, and once close_descriptor() was called.
  int descriptor() const { return fd_.get(); }
  void close_descriptor() { fd_.reset(); }
  const std::shared_ptr<ddp::detail::TimelineRing>& ring() const { return ring_; }

 private:
  std::shared_ptr<ddp::detail::TimelineRing> ring_;
  UniqueFd fd_;
};

// What --timeline and --timeline_steps ask for.
ddp::detail::RecordingPlan recording_plan(const Options& options);

}  // namespace launcher
