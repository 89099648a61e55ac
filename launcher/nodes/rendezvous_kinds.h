// The ways in which the launchers of a job can meet, with their names for --rdzv_backend.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// Called by a node that cannot start its part of a job on several nodes. Connects to the other nodes to inform them, so
// that they do not wait for this one. Returns when they know, or when they have not arrived within seconds. Returns the
// exit status of all nodes, or the node's own if it is alone.
int notify_other_nodes(const Options& options, const JoinFailure& start_failure);

struct RendezvousKind {
  std::string_view name;
  // Why `options` cannot be used with this kind; "" when they can. Pure.
  std::string (*option_conflict)(const Options& options);
  // References must outlive the rendezvous.
  std::unique_ptr<Rendezvous> (*make)(EventLoop& loop, Messages& messages, RendezvousSettings settings);
};

// The kind for a job with these options: always the same for one node. Null for an unknown name.
const RendezvousKind* find_rendezvous(const Options& options);

// Returns the names for several nodes as a text: "'static', 'c10d' or 'other'".
std::string rendezvous_names();

}  // namespace launcher
