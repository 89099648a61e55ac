// One rank as it is seen at one moment: what every judgement and every table is made of.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/progress/page_reader.h"
#include "launcher/watch/process_state.h"

namespace launcher {

struct RankView {
  int rank = 0;
  std::string host{};
  pid_t pid = 0;
  // Nothing: no program of the library writes the rank's page, as with Python.
  std::optional<ddp::detail::ProgressSnapshot> progress{};
  // Nothing: the process has ended.
  std::optional<ProcessState> process{};
  std::string ended{};        // "exited with status 0"; empty while it runs
  std::uint64_t idle_us = 0;  // how long no progress of it was seen
  double cpu_share = 0;       // processors that it used between the last two looks

  bool runs() const { return ended.empty(); }
};

}  // namespace launcher
