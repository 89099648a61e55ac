// What becomes of one output stream of one rank, as the options have it. Pure.
#pragma once

#include <string>

#include "launcher/plan/log_layout.h"
#include "launcher/plan/options.h"
#include "launcher/plan/stream_selection.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct StreamRoute {
  enum class To {
    kConsole,  // ddprun's own descriptor
    kNothing,
    kFile,   // the file, which the rank writes itself
    kRelay,  // ddprun reads it and passes it on
  };
  To to = To::kConsole;
  bool is_shown = true;  // on ddprun's own output
  std::string file{};    // that holds the stream's bytes; empty: none
};

// True when there are prefixes on this node.
bool has_prefixes(const Options& options);

// True when a log folder is needed for the ranks' output, whether or not the user named one.
bool needs_log_folder(const Options& options);

StreamRoute route_stream(const Options& options, const LogLayout& layout, int attempt, const RankPlace& place,
                         Stream stream);

// The same before the nodes have met, when ranks are not numbered yet: where it says kRelay, a relay may be needed.
StreamRoute planned_route(const Options& options, int local_rank, Stream stream);

// How many descriptors ddprun needs for itself, its watch over `options.nproc_per_node` ranks, their streams, and their
// connections to the store.
std::size_t needed_descriptors(const Options& options);

}  // namespace launcher
