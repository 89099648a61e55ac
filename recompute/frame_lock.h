// Allows one second run of a region at a time. A thread that waits for another thread's second run still runs the
// queued nodes of its device, because a backward that the region's function calls may need them.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ddp::recompute {

/// A recursive lock. LibTorch's engine has one thread for each device of a process. While such a thread waits for the
/// lock, it runs the nodes that a backward inside a region has queued for its device.
class FrameLock {
 public:
  void lock();
  void unlock();

 private:
  bool is_free() const { return depth_ == 0 || owner_ == std::this_thread::get_id(); }

  std::mutex guard_;
  std::condition_variable released_;
  std::thread::id owner_;
  int depth_ = 0;
};

/// During its lifetime, the calling thread counts as being in a backward that a region's function called.
class BackwardInRegion {
 public:
  BackwardInRegion() noexcept;
  ~BackwardInRegion();
  BackwardInRegion(const BackwardInRegion&) = delete;
  BackwardInRegion& operator=(const BackwardInRegion&) = delete;
};

}  // namespace ddp::recompute
