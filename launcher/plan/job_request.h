// What a job on this node needs, decided before anything starts.
#pragma once

#include <string>

#include "launcher/plan/options.h"
#include "launcher/plan/program.h"
#include "launcher/plan/resources.h"

namespace launcher {

struct JobRequest {
  Options options;
  Program program;
  Resources resources;
  std::string debugger;      // of --debug; empty: none
  std::string error_folder;  // for the workers' error files; empty: they are among the log files
};

}  // namespace launcher
