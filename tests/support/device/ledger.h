// What the devices were asked to do, and what was wrong with it.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/device/device.h"

namespace ddp::test::device {

class Ledger {
 public:
  template <typename Change>
  void count(Change change) {
    const std::lock_guard lock(mutex_);
    change(counts_);
  }
  void fault(std::string text);
  /// A fault that is a use of another device than the right one.
  void wrong_device(std::string text);
  void touch(int device);
  /// Something that any device's context serves, as page-locked memory: makes one on `device` where there is none yet.
  void touch_any(int device);
  /// The host is about to wait. Throws where the program has forbidden it (tests/support/gpu_waits.h).
  void host_waits(const std::string& why);

  Counts counts() const;
  void forget_counts();
  std::vector<std::string> take_faults();
  std::vector<int> take_touched();

 private:
  mutable std::mutex mutex_;
  Counts counts_;
  std::vector<std::string> faults_;
  std::set<int> touched_;
  bool has_context_ = false;
};

}  // namespace ddp::test::device
