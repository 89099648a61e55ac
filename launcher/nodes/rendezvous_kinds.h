// The ways in which the launchers of a job can meet, by the names that --rdzv_backend has for them.
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

// What a node does that cannot start its part of a job on several nodes.
// Meets the other nodes to inform them, so that they do not wait for this one, and returns when they know or when they
// have not come within seconds. Returns the status with which all end; its own where it is alone.
int notify_other_nodes(const Options& options, const JoinFailure& trouble);

struct RendezvousKind {
  std::string_view name;
  // Why `options` do not fit it, "" when they do. Pure.
  std::string (*option_conflict)(const Options& options);
  // References must outlive the rendezvous.
  std::unique_ptr<Rendezvous> (*make)(EventLoop& loop, Messages& messages, RendezvousSettings settings);
};

// The one for a job with these options: always the same on one node. Null for an unknown name.
const RendezvousKind* find_rendezvous(const Options& options);

// "'static', 'c10d' or 'other'": those for several nodes.
std::string rendezvous_names();

}  // namespace launcher
