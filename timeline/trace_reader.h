// Reads timelines of ddprun. A file is hostile until it has been read: it may be of another program, cut off, huge, or
// nonsense, and memory is bounded by the number of events that are taken.
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

// Why a file cannot be read, without its name.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file for reading. Throws TraceError, with its name, when it cannot be read or is empty.
std::ifstream open_trace(const std::string& file);

// The number of the restart in what a rank's process is called: 2 in "rank 0 on host, restart 2"; 0 where there is
// none.
int restart_of(std::string_view rank_name);

// Throws TraceError.
Trace read_trace(std::istream& file, const ReadLimits& limits = {});

}  // namespace ddp::timelines
