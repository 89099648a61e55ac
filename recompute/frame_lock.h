// One second run of a region at a time. A thread that waits for another's second run still serves its device: a
// backward that the region's function calls may need it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ddp::recompute {

/// A recursive lock. Of a backward's thread that waits for it LibTorch's engine gets what a backward inside a region
/// has for the device of that thread, of which there is one in a process.
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

/// While it lives, the calling thread is in a backward that a region's function called.
class BackwardInRegion {
 public:
  BackwardInRegion() noexcept;
  ~BackwardInRegion();
  BackwardInRegion(const BackwardInRegion&) = delete;
  BackwardInRegion& operator=(const BackwardInRegion&) = delete;
};

}  // namespace ddp::recompute
