// Removes descriptors from this process's table for a time. Each fork copies the table, and each exec closes the
// copies, so with n ranks the pipes of all other ranks cost n * n: half of the start-up time of 1000 ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

class ParkedDescriptors {
 public:
  // `fd` must not be moved until take_back(), and may be empty until then.
  void park(UniqueFd& fd);
  // Restores all descriptors, possibly under other numbers. Throws LaunchError when the limit on open files is reached.
  void take_back();

 private:
  void park_batch();

  // The descriptors are in messages that have not been received yet.
  UniqueFd sender_;
  UniqueFd receiver_;
  std::vector<UniqueFd*> batch_;                // still in the table
  std::vector<std::vector<UniqueFd*>> parked_;  // one element per message
  bool is_refused_ = false;
};

}  // namespace launcher
