// Where one output stream of one rank goes, as the options define it. Pure.
#pragma once

#include <string>

#include "launcher/plan/log_layout.h"
#include "launcher/plan/options.h"
#include "launcher/plan/stream_selection.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct StreamRoute {
  enum class To {
    kConsole,  // directly to ddprun's own descriptor
    kNothing,
    kFile,   // to the file, which the rank writes itself
    kRelay,  // ddprun reads it and passes it on
  };
  To to = To::kConsole;
  bool is_shown = true;  // on ddprun's own output
  std::string file{};    // the file for the stream's bytes; empty: no file
};

// True when the lines of this node's ranks get prefixes.
bool has_prefixes(const Options& options);

// True when a log folder is needed for the ranks' output, even if the user did not name one.
bool needs_log_folder(const Options& options);

StreamRoute route_stream(const Options& options, const LogLayout& layout, int attempt, const RankPlace& place,
                         Stream stream);

// The route as known before the nodes have met, when the ranks have no numbers yet. kRelay then means that a relay may
// be needed.
StreamRoute planned_route(const Options& options, int local_rank, Stream stream);

// How many descriptors ddprun needs for itself, its watch over `options.nproc_per_node` ranks, their streams, and their
// connections to the store.
std::size_t needed_descriptors(const Options& options);

}  // namespace launcher
