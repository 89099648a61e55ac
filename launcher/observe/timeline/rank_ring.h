// The memory into which one rank writes its timeline. It has no name, and is freed when no process has it open any
// more.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <memory>
#include <utility>

#include "base/timeline/collector.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/options.h"

namespace launcher {

class RankRing {
 public:
  // If the kernel provides no memory, the object is empty, and the rank is not recorded.
  explicit RankRing(const ddp::detail::RecordingPlan& plan) {
    using ddp::detail::TimelineRing;
    UniqueFd fd(::memfd_create("ddprun-timeline", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // The mode applies to processes that open /proc/<pid>/fd/<n>.
    if (!fd || ::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), sizeof(TimelineRing)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return;
    }
    void* memory = ::mmap(nullptr, sizeof(TimelineRing), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) return;
    ring_ = {static_cast<TimelineRing*>(memory), [](TimelineRing* ring) { ::munmap(ring, sizeof(TimelineRing)); }};
    ddp::detail::set_plan(*ring_, plan, /*is_running=*/false);
    ring_->greeting.store(ddp::detail::kTimelineGreeting, std::memory_order_release);
    fd_ = std::move(fd);
  }

  // The descriptor for the rank; -1 when there is no memory, and after close_descriptor().
  int descriptor() const { return fd_.get(); }
  void close_descriptor() { fd_.reset(); }
  const std::shared_ptr<ddp::detail::TimelineRing>& ring() const { return ring_; }

 private:
  std::shared_ptr<ddp::detail::TimelineRing> ring_;
  UniqueFd fd_;
};

// The recording that --timeline and --timeline_steps request.
inline ddp::detail::RecordingPlan recording_plan(const Options& options) {
  using ddp::detail::RecordingMode;
  if (options.timeline_file.empty()) return {.mode = RecordingMode::kOff};
  if (!options.timeline_steps) return {.mode = RecordingMode::kOn};
  return {.mode = RecordingMode::kSteps, .first = options.timeline_steps->first, .last = options.timeline_steps->last};
}

}  // namespace launcher
