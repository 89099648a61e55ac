#include "launcher/local/processes/terminal_loan.h"

#include <unistd.h>

namespace launcher {

void TerminalLoan::lend_to(pid_t group, pid_t owner) {
  if (::tcgetpgrp(STDIN_FILENO) != owner) return;
  owner_ = owner;
  ::tcsetpgrp(STDIN_FILENO, group);
}

void TerminalLoan::take_back() {
  if (owner_ > 0) ::tcsetpgrp(STDIN_FILENO, owner_);
  owner_ = 0;
}

}  // namespace launcher
