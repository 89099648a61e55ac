#include "launcher/rendezvous/static_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/system/tcp_socket.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long a node that ended well waits for the others; torchrun's.
constexpr auto kExitBarrierTimeout = 300s;
// After a failure: how long the answer of the store may take that says whether another node failed earlier, and how
// long node 0 keeps the store for the others to hear of it.
constexpr auto kFailureTimeout = 1s;

}  // namespace

std::string StaticRendezvous::objection(const Options& options) {
  const std::string nodes = "--nnodes " + std::to_string(options.nnodes);
  if (options.node_rank >= options.nnodes) {
    return "--node_rank " + std::to_string(options.node_rank) + " is not below " + nodes;
  }
  if (!options.hosts.empty()) return "-H is for one node; with " + nodes + " use -n";
  if (options.max_restarts > 0) return "--max_restarts works on one node only";
  if (options.store == Options::Store::kRank0) {
    return "--store rank0 works on one node only: the nodes meet at node 0's store";
  }
  if (options.node_rank > 0 && options.master_addr.empty()) return nodes + ": --master_addr must name node 0's host";
  return "";
}

StaticRendezvous::StaticRendezvous(EventLoop& loop, Messages& messages, RendezvousSettings settings)
    : loop_(loop), messages_(messages), settings_(std::move(settings)) {}

StaticRendezvous::~StaticRendezvous() {
  if (leave_timer_) loop_.cancel(*leave_timer_);
}

void StaticRendezvous::begin_round(int /*restart_count*/) {
  info_.reset();
  unannounced_.reset();
  round_.reset();
  store_.reset();
  master_port_ = settings_.master_port;
  if (settings_.node_rank == 0) {
    store::ServerOptions server = settings_.store;
    server.port = static_cast<std::uint16_t>(master_port_);
    server.loopback_only = false;
    store_.emplace(loop_, messages_, std::move(server));
    master_port_ = store_->port();
  } else if (master_port_ == 0) {
    master_port_ = free_port();
  }
  round_.emplace(loop_, messages_,
                 StaticRoundOptions{.nnodes = settings_.nnodes,
                                    .node_rank = settings_.node_rank,
                                    .local_world_size = settings_.local_world_size,
                                    .role = settings_.role,
                                    .run_id = settings_.run_id,
                                    .host = store_ ? "127.0.0.1" : settings_.master_addr,
                                    .port = static_cast<std::uint16_t>(master_port_),
                                    .join_timeout = settings_.join_timeout,
                                    .look_up = [this](const std::string& key) { return store_->look_up(key); },
                                    .on_joined = [this](const NodeRanks& ranks) { on_joined(ranks); },
                                    .on_failure = [this](const FailureNotice& notice,
                                                         bool is_own) { on_first_failure(notice, is_own); }});
}

void StaticRendezvous::on_joined(const NodeRanks& ranks) {
  info_ = {.place = {.group_rank = settings_.node_rank, .group_world_size = settings_.nnodes, .ranks = ranks},
           .master_addr = settings_.master_addr,
           .master_port = master_port_};
  if (unannounced_) round_->announce(*unannounced_);
}

void StaticRendezvous::announce(int exit_status, const std::string& text) {
  const FailureNotice notice{settings_.node_rank, exit_status, text};
  if (info_) {
    round_->announce(notice);
  } else if (!unannounced_) {
    unannounced_ = notice;
  }
}

void StaticRendezvous::on_first_failure(const FailureNotice& notice, bool is_own) {
  if (leave_timer_) leave_by(std::min(leave_deadline_, EventLoop::Clock::now() + kFailureTimeout));
  if (!is_own) settings_.on_failure(notice);
}

// After a good end the ranks of other nodes may still use the store. After a failure it must become known whether
// another node failed before, and all nodes must hear of it before the store goes.
void StaticRendezvous::leave(bool ended_well) {
  if (ended_well) round_->leave();
  leave_by(EventLoop::Clock::now() + (ended_well ? kExitBarrierTimeout : kFailureTimeout));
}

void StaticRendezvous::leave_by(EventLoop::Clock::time_point deadline) {
  if (leave_timer_) loop_.cancel(*leave_timer_);
  leave_deadline_ = deadline;
  leave_timer_ = loop_.call_at(deadline, [this] { leave_timer_.reset(); });
}

bool StaticRendezvous::has_left() const {
  if (!leave_timer_) return true;
  if (!first_failure()) return round_->has_left();
  return !store_ || round_->have_all_heard();
}

}  // namespace launcher
