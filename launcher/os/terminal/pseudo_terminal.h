// A pseudo-terminal for one stream of a rank, so that programs buffer by lines and show colours and progress bars as
// they would at ddprun's own terminal.
#pragma once

#include <cstddef>
#include <optional>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct PseudoTerminal {
  UniqueFd master;    // ddprun reads here: EIO, not the end of a file, when the last writer is gone
  UniqueFd terminal;  // the rank writes here
};

// Raw: what is written comes out byte for byte, without translated newlines or echo. Its window is as large as that of
// the terminal `like`, less `prefix_columns` that stand in front of each line. Nothing where the system has no
// pseudo-terminals (left).
std::optional<PseudoTerminal> open_pseudo_terminal(int like, std::size_t prefix_columns);

void copy_window_size(int from_terminal, int to_terminal, std::size_t prefix_columns);

}  // namespace launcher
