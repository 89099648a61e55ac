#include "launcher/local/output/stream_route.h"

#include <algorithm>

namespace launcher {
namespace {

// Descriptors for the event loop, signals, the pipes between ddprun's processes, its own output, the store, and files
// that are open for a short time.
constexpr std::size_t kOwnDescriptors = 24;

}  // namespace

bool has_prefixes(const Options& options) {
  return options.prefix.has_value() || !options.line_prefix_template.empty() ||
         (!options.no_prefix && (options.nproc_per_node > 1 || options.nnodes > 1));
}

bool needs_log_folder(const Options& options) {
  return !options.log_folder.empty() || !options.redirects.is_empty() || !options.tee.is_empty() ||
         !options.output_filters.empty() || !options.error_filters.empty();
}

StreamRoute route_stream(const Options& options, const LogLayout& layout, int attempt, const RankPlace& place,
                         Stream stream) {
  using To = StreamRoute::To;
  StreamRoute route;
  if (options.debug_rank == place.rank) return route;  // the debugger needs the terminal itself

  const auto& shown = options.console_ranks;
  const bool is_teed = options.tee.of_rank(place.local_rank).has(stream) || !options.output_folder.empty();
  const bool is_redirected = options.redirects.of_rank(place.local_rank).has(stream);
  route.is_shown = (shown.empty() || std::find(shown.begin(), shown.end(), place.local_rank) != shown.end()) &&
                   (is_teed || !is_redirected);
  if (!options.output_folder.empty()) {
    route.file = layout.output_file(place, stream);
  } else if (is_teed || is_redirected) {
    route.file = layout.log_file(attempt, place, stream);
  }

  const bool is_filtered = !(stream == Stream::kOutput ? options.output_filters : options.error_filters).empty();
  if (is_filtered) {
    route.to = To::kRelay;
  } else if (route.is_shown) {
    route.to = has_prefixes(options) || !route.file.empty() ? To::kRelay : To::kConsole;
  } else if (!route.file.empty()) {
    route.to = To::kFile;
  } else {
    route.to = stream == Stream::kError ? To::kRelay : To::kNothing;  // the report on a failure contains its last lines
  }
  return route;
}

StreamRoute planned_route(const Options& options, int local_rank, Stream stream) {
  constexpr int kUnknown = -1;
  const RankPlace place{.rank = options.nnodes == 1 ? local_rank : kUnknown,
                        .local_rank = local_rank,
                        .world_size = options.nproc_per_node};
  return route_stream(options, LogLayout{}, 0, place, stream);
}

std::size_t needed_descriptors(const Options& options) {
  const auto ranks = static_cast<std::size_t>(options.nproc_per_node);
  std::size_t count = kOwnDescriptors + ranks;  // one pidfd for each rank
  if (options.node_rank == 0 && options.store == Options::Store::kLauncher) {
    count += ranks * static_cast<std::size_t>(options.nnodes);
  }
  if (options.standard_input.to == StandardInput::To::kAll) count += ranks;
  for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
    for (const Stream stream : {Stream::kOutput, Stream::kError}) {
      const StreamRoute route = planned_route(options, local_rank, stream);
      if (route.to == StreamRoute::To::kRelay) count += route.file.empty() ? 1 : 2;
    }
  }
  return count;
}

}  // namespace launcher
