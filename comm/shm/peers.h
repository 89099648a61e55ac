// Internal: who of the other ranks is still there. No LibTorch.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/shm/segment.h"

namespace ddp::shm {

class Peers {
 public:
  /// `numbers`: what the ranks are called in messages, where that is not their place in the segment.
  Peers(Segment segment, int rank, std::vector<int> numbers = {});
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// `rank`, which is of this process, will use the memory: before the others may look for it.
  static void announce(const Segment& segment, int rank);
  /// This rank has mapped the memory.
  void arrive();
  /// This rank takes part no more; `why` is for the others, empty where nothing has failed. The first call counts.
  void leave(const std::string& why);

  /// The reason that `rank` has announced for its end; nullopt if it has not announced one.
  std::optional<std::string> announced_reason(int rank) const;
  /// The reason why a rank has announced a failure, which ends the group; nullopt if no rank has.
  std::optional<std::string> first_failure() const;
  /// The same, and also checks by system calls whether the rank's process has ended.
  std::optional<std::string> gone(int rank);
  /// "rank 2 (process 1234)".
  std::string name(int rank) const;

  /// This rank still waits, for `rank`. To be called again and again while it does.
  void wait_for(int rank);
  /// name(), and for whom that one waits in turn: "rank 2 (process 1234), which waits for rank 0 (process 1230)". Who
  /// has not called wait_for() for `recently` is what the others wait for.
  std::string name_with_cause(int rank, std::chrono::nanoseconds recently) const;

 private:
  bool has_died(int rank);

  const Segment segment_;
  const int rank_;
  const std::vector<int> numbers_;
  bool has_left_ = false;
  std::vector<int> pidfds_;  // -1: not opened yet
};

}  // namespace ddp::shm
