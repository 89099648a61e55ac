// One rank as it is seen at one moment: what every judgement and every table is made of.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/progress/page_reader.h"
#include "launcher/observe/watch/process_state.h"

namespace launcher {

struct RankView {
  int rank = 0;
  std::string host{};
  pid_t pid = 0;
  // Nothing: no program of the library writes the rank's page, as with Python.
  std::optional<ddp::detail::ProgressSnapshot> progress{};
  // Of the process that does the rank's work; the memory is of all processes of the rank. Nothing: it has ended.
  std::optional<ProcessState> process{};
  int processes = 0;          // the rank's own and those below it
  std::string ended{};        // "exited with status 0"; empty while it runs
  std::uint64_t idle_us = 0;  // how long no progress of it was seen
  double cpu_share = 0;       // processors that it and those below it used between the last two looks
  // It has a connection to the job's store. Nothing: not asked, as for ranks that are in a group.
  std::optional<bool> at_store{};

  bool runs() const { return ended.empty(); }
  bool is_in_group() const { return progress && !progress->groups.empty(); }
};

}  // namespace launcher
