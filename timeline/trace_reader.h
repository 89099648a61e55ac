// Reads timelines of ddprun. A file may be malicious: it may come from another program, be cut off, be huge or contain
// nonsense. Memory is bounded by the number of events that are read.
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
  std::size_t text = std::size_t{1} << 20;  // bytes of one string
};

// The reason why a file cannot be read. The text does not name the file.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file for reading. Throws TraceError, with its name, when it cannot be read or is empty.
std::ifstream open_trace(const std::string& file);

// The number of the restart in the name of a rank's process: 2 in "rank 0 on host, restart 2"; 0 if there is none.
int restart_of(std::string_view rank_name);

// Throws TraceError.
Trace read_trace(std::istream& file, const ReadLimits& limits = {});

}  // namespace ddp::timelines
