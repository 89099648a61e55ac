// Reads timelines of ddprun. The file is untrusted: it may be malicious, come from another program, be truncated, huge
// or invalid. Memory use is bounded by the number of events that are read.
#pragma once

#include <cstddef>
#include <fstream>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>

#include "timeline/trace.h"

namespace ddp::timelines {

struct ReadLimits {
  std::size_t events = 20'000'000;
  std::size_t names = 1'000'000;
  std::size_t text = std::size_t{1} << 20;  // the maximum bytes of one string
};

// The reason why a file cannot be read. The text does not contain the name of the file.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Opens a file for reading. Throws TraceError with the name of the file if it cannot be read or is empty.
std::ifstream open_trace(const std::string& file);

// Returns the restart number in the process name of a rank: 2 for "rank 0 on host, restart 2"; 0 without a restart.
int restart_of(std::string_view rank_name);

// Reads a timeline. Throws TraceError.
Trace read_trace(std::istream& file, const ReadLimits& limits = {});

}  // namespace ddp::timelines
