// ddprun's terminal, lent to a rank that reads it: the rank's process group is the foreground one meanwhile.
#pragma once

#include <sys/types.h>

namespace launcher {

class TerminalLoan {
 public:
  TerminalLoan() = default;
  ~TerminalLoan() { take_back(); }
  TerminalLoan(const TerminalLoan&) = delete;
  TerminalLoan& operator=(const TerminalLoan&) = delete;

  // Nothing happens when `owner` is not in the foreground: then the rank gets on as any background job.
  void lend_to(pid_t group, pid_t owner);
  void take_back();

 private:
  pid_t owner_ = 0;  // 0: not lent
};

}  // namespace launcher
