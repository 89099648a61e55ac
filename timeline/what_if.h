// The option --what-if: how many ranks there would be, on which hosts and network.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "timeline/forecast.h"

namespace ddp::timelines {

// What is wrong with the option's value: what was expected, and what was got.
class WhatIfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "ranks=1024,hosts=128,bandwidth=400Gbit,latency=5us": see kWhatIfHelp. Throws WhatIfError.
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
