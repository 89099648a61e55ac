// Parses the option --what-if: the number of ranks to predict for, their hosts and their network.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "timeline/forecast.h"

namespace ddp::timelines {

// The error in the value of the option: what was expected and what was given.
class WhatIfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses a value such as "ranks=1024,hosts=128,bandwidth=400Gbit,latency=5us"; kWhatIfHelp describes the format. Throws
// WhatIfError.
Scenario parse_what_if(std::string_view text);

inline constexpr const char* kWhatIfHelp =
    "Predict the steps of more ranks on a network:\n"
    "ranks=N,bandwidth=B,latency=T; if wanted, hosts=N\n"
    "(default: a host for each rank),\n"
    "local_bandwidth=B, local_latency=T (in a host;\n"
    "default: as between hosts),\n"
    "algorithm=ring|hierarchical (default: the faster).\n"
    "B is of a host, e.g. 400Gbit or 50GB (a second);\n"
    "T is of a message, e.g. 5us";

}  // namespace ddp::timelines
