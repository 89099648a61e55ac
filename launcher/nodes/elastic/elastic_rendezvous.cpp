#include "launcher/nodes/elastic/elastic_rendezvous.h"

#include <unistd.h>

#include <algorithm>

#include "launcher/nodes/elastic/endpoint_discovery.h"
#include "launcher/nodes/elastic/etcd_discovery.h"
#include "launcher/nodes/rendezvous/listen_choice.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/version.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

// After a failure: how long a launcher waits to learn which failure was the first. A rank may write a core file during
// that time.
constexpr auto kVerdict = 65s;
// No practical limit: the coordinator notices when a node is lost, so the wait ends with the last node.
constexpr auto kExitBarrier = 24h * 365;
// A coordinator that has lost all other nodes waits this much longer than they search for it.
constexpr std::chrono::milliseconds kSearchMargin = 3s;
// How long a launcher may be silent while it prepares or cleans up the ranks: a slow disk may delay it.
constexpr auto kBusyTimeout = 30s;

// `find_again`: how long nodes that have lost the coordinator search for it.
RoundsOptions rounds_options(const RendezvousSettings& settings, std::chrono::milliseconds find_again) {
  const ElasticOptions& elastic = settings.elastic;
  const auto return_timeout =
      control::node_side_timeout(settings.node_timeout) - settings.node_timeout + find_again + kSearchMargin;
  return {.min_nodes = elastic.is_on() ? elastic.min_nodes : settings.nnodes,
          .max_nodes = settings.nnodes,
          .budget = {settings.max_restarts, elastic.restarts_per_hour},
          .host_failures = elastic.host_failures,
          .join_restart = elastic.join_restart,
          .order_by_host = settings.node_order == NodeOrder::kHostName,
          .join_timeout = settings.join_timeout,
          .last_call = elastic.last_call,
          .return_timeout = return_timeout};
}

std::string nodes_and_ranks(const NodePlace& place) {
  const auto counted = [](int count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  return counted(place.group_world_size, "node") + " and " + counted(place.ranks.world_size, "rank");
}

}  // namespace

std::string EtcdRendezvous::option_conflict(const Options& options) {
  const std::string backend = "--rdzv_backend " + options.rdzv_backend;
  if (!options.hosts.empty()) return "-H cannot be combined with " + backend + "; use -n";
  if (options.store == Options::Store::kRank0) return "--store rank0 works on one node only, not with " + backend;
  if (options.master_addr.empty()) return backend + ": --rdzv_endpoint must name the host of etcd";
  if (options.master_port == 0) return backend + ": --rdzv_endpoint needs etcd's port, not 0";
  return "";
}

std::unique_ptr<CoordinatorDiscovery> EtcdRendezvous::make_discovery(CoordinatorDiscovery::Callbacks callbacks) {
  return std::make_unique<EtcdDiscovery>(loop_, settings_, std::move(callbacks));
}

std::string ElasticRendezvous::option_conflict(const Options& options) {
  const std::string nodes =
      "--nnodes " + std::to_string(options.elastic.min_nodes) + ":" + std::to_string(options.nnodes);
  if (options.rdzv_backend == "static") {
    return nodes + ": with --rdzv_backend static the number of nodes is fixed; use c10d, or leave it out";
  }
  if (!options.hosts.empty()) return "-H cannot be combined with " + nodes + "; use -n";
  if (options.store == Options::Store::kRank0) return "--store rank0 works on one node only, not with " + nodes;
  if (options.master_addr.empty())
    return nodes + ": --rdzv_endpoint is missing: choose one node and give its HOST:PORT on every node";
  if (options.master_port == 0) return nodes + ": --rdzv_endpoint needs a fixed port, the same on all nodes, not 0";
  return "";
}

ElasticRendezvous::ElasticRendezvous(EventLoop& loop, Messages& messages, RendezvousSettings settings)
    : loop_(loop), messages_(messages), settings_(std::move(settings)) {}

ElasticRendezvous::~ElasticRendezvous() {
  member_.reset();  // destroyed before the coordinator to which it is connected
}

// True when this node may return to a coordinator that cannot be replaced. The lost round is then repeated, which needs
// a restart.
bool ElasticRendezvous::can_return() const {
  return !discovery_->is_lasting() && settings_.max_restarts > 0;
}

std::unique_ptr<CoordinatorDiscovery> ElasticRendezvous::make_discovery(CoordinatorDiscovery::Callbacks callbacks) {
  return std::make_unique<EndpointDiscovery>(loop_, messages_, settings_, std::move(callbacks));
}

std::chrono::milliseconds ElasticRendezvous::timeout() const {
  return answers_immediately_ ? settings_.node_timeout : kBusyTimeout;
}

// True when the other nodes have continued without this one, which was frozen or cut off.
bool ElasticRendezvous::was_excluded() const {
  if (!coordinator_ && member_->was_dropped()) return true;
  const auto& first = member_->first_failure();
  return !coordinator_ && info_ && first && first->node == info_->place.group_rank && !member_->has_failed();
}

void ElasticRendezvous::begin_round(int restart_count) {
  const bool is_new = !member_ || was_replaced_ || was_excluded() ||
                      (!member_->is_connected() && !join_failure() &&
                       (discovery_->is_lasting() || (can_return() && member_->has_lost_coordinator())));
  info_.reset();
  answers_immediately_ = false;
  is_leaving_ = false;
  round_ = restart_count;
  leave_timer_.cancel();
  if (is_new) {
    search();
    return;
  }
  if (coordinator_) {
    open_store();
    coordinator_->begin_round(round_, *store_);
  }
  member_->begin_round(round_);
}

void ElasticRendezvous::search() {
  if (!discovery_) {
    discovery_ = make_discovery({.on_host = [this](const ListenAt& where, const History& past) { host(where, past); },
                                 .on_found = [this](UniqueFd fd) { join(std::move(fd)); },
                                 .on_impossible = [this](const JoinFailure& reason) { join_failure_ = reason; },
                                 .on_replaced =
                                     [this](const std::string& reason) {
                                       messages_.print(reason);
                                       was_replaced_ = true;
                                       if (member_) member_->give_up(reason);
                                     }});
  }
  // A coordinator that left before the first round may be started again, possibly on this host.
  const bool anew = member_ != nullptr && (discovery_->is_lasting() || has_taken_part_ || member_->is_spare());
  is_search_after_loss_ = anew && !discovery_->is_lasting() && !member_->was_dropped();
  has_lost_coordinator_ = anew && member_->has_lost_coordinator();
  member_.reset();
  coordinator_.reset();
  store_.reset();
  was_replaced_ = false;
  has_printed_missing_nodes_ = false;
  join_timeout_ = settings_.join_timeout;
  if (anew && !discovery_->is_lasting()) join_timeout_ = std::min(discovery_->search_timeout(), join_timeout_);
  search_timer_.start_in(std::min<EventLoop::Clock::duration>(kSilentWait, join_timeout_), [this] { watch_search(); });
  discovery_->search(anew, has_taken_part_);
}

// Called twice: first to print what the node waits for, then when the timeout expires.
void ElasticRendezvous::watch_search() {
  search_timer_.cancel();
  if (member_ || join_failure_) return;
  const std::string problem = discovery_->problem();
  const std::string advice = is_search_after_loss_ ? "" : discovery_->advice();
  const std::string where = discovery_->name() + (problem.empty() ? "" : " (" + problem + ")");
  if (join_timeout_ <= kSilentWait || has_printed_missing_nodes_) {
    join_failure_ = {(is_search_after_loss_ ? "the node that coordinates the job was lost, and not found again at "
                                            : "the other nodes of this job were not found at ") +
                         where + within_join_timeout(join_timeout_) + (advice.empty() ? "" : ": " + advice),
                     is_search_after_loss_ ? 1 : to_int(ExitStatus::kTimeout)};
    return;
  }
  messages_.print("looking for the other nodes of this job at " + where);
  has_printed_missing_nodes_ = true;
  search_timer_.start_in(join_timeout_ - kSilentWait, [this] { watch_search(); });
}

// Called when the coordinator was lost before a round began with this node. Returns whether the node searches again.
bool ElasticRendezvous::searches_again(const std::string& reason) {
  const bool has_begun = has_taken_part_ || member_->is_spare();
  if (!discovery_->is_lasting()) {
    if (coordinator_ || (has_begun && !(member_->has_lost_coordinator() && can_return()))) return false;
    if (!has_begun)
      messages_.print("the launcher that coordinates the job left before all had arrived (" + reason +
                      "); waiting for it to return to " + discovery_->name());
  }
  search_again();
  return true;
}

void ElasticRendezvous::search_again() {
  search_again_timer_.start_in({}, [this] { search(); });
}

// Opens a new store on a new port for each round, so that a late rank of an earlier round cannot connect to it.
void ElasticRendezvous::open_store() {
  store_.reset();
  store::ServerOptions server = settings_.store;
  server.where = listen_at_;
  store_.emplace(loop_, messages_, std::move(server));
}

void ElasticRendezvous::host(const ListenAt& where, const History& history) {
  listen_at_ = where;
  const std::string note = settings_.secret ? "" : open_port_note(discovery_->name(), listen_at_);
  if (!note.empty()) messages_.print(note);
  CoordinatorOptions options{.host = hello()};
  options.rendezvous_address = discovery_->name();
  options.where = listen_at_;
  options.secret = settings_.secret;
  options.order = NodeOrder::kArrival;
  options.join_timeout = settings_.join_timeout;
  options.node_timeout = settings_.node_timeout;
  options.timeout = [this] { return timeout(); };
  History past = history;
  if (has_lost_coordinator_) ++past.nodes;  // waits for the node of the lost coordinator, too
  coordinator_ = std::make_unique<ElasticCoordinator>(
      loop_, messages_, std::move(options),
      JobOptions{.rounds = rounds_options(settings_, discovery_->search_timeout()),
                 .history = past,
                 .is_replaceable = discovery_->is_lasting(),
                 .on_change = [this](Change change) {
                   discovery_->record(coordinator_->history(), change, coordinator_->job_end());
                 }});
  open_store();
  coordinator_->begin_round(round_, *store_);
  discovery_->announce(coordinator_->port());
  join(coordinator_->connect_locally());
}

control::Hello ElasticRendezvous::hello() const {
  return {.version = kDdprunVersion,
          .host = settings_.host,
          .pid = ::getpid(),
          .nnodes = settings_.nnodes,
          .min_nodes = settings_.elastic.min_nodes,
          .node_rank = control::kAnyNode,
          .run_id = settings_.run_id,
          .backend = backend(),
          .max_restarts = settings_.max_restarts,
          .local_world_size = settings_.local_world_size,
          .role = settings_.role,
          .start_failure = settings_.start_failure};
}

void ElasticRendezvous::join(UniqueFd fd) {
  MemberOptions options{.hello = hello(), .is_local = coordinator_ != nullptr};
  if (!coordinator_) options.secret = settings_.secret;  // the node's own coordinator needs no secret
  options.coordinator = discovery_->name();
  options.timeout = [this] { return timeout(); };
  options.is_any_ending = settings_.is_any_ending;
  options.on_message = settings_.on_message;
  options.on_start = [this](const control::Start& start) { set_info(start); };
  options.on_failure = [this](const FailureNotice& notice) {
    if (is_leaving_) answer_immediately(false);
    settings_.on_failure(notice);
  };
  options.on_lost = [this](const std::string& reason) { return searches_again(reason); };
  if (discovery_->is_lasting()) {
    options.is_coordinator_replaceable = true;
    options.loss_note = "; another node becomes the coordinator";
  } else {
    options.may_come_back = [this] { return can_return(); };
    options.on_dropped = [this] { search_again(); };
    options.loss_note = "; it coordinates the job, which ends with it";
  }
  member_ = std::make_unique<Member>(loop_, messages_, std::move(options), std::move(fd));
  member_->begin_round(round_);
}

void ElasticRendezvous::set_info(const control::Start& start) {
  has_taken_part_ = true;
  info_ = {.place = start.place,
           .master_addr = discovery_->host(),
           .master_port = start.store_port,
           .store_channel = coordinator_ ? nullptr : member_->store_channel(),
           .restart_count = start.round};
  if (start.round > 0) {
    messages_.print("restart " + std::to_string(start.round) + ": " + nodes_and_ranks(start.place));
  }
}

std::optional<JoinFailure> ElasticRendezvous::join_failure() const {
  return member_ ? member_->join_failure() : join_failure_;
}

bool ElasticRendezvous::can_restart() const {
  const auto& first = first_failure();
  return first && !first->is_final;
}

void ElasticRendezvous::announce(FailureNotice notice) {
  const bool hands_over = discovery_ && discovery_->is_lasting() && notice.may_rejoin;
  if (!info_ && coordinator_ && hands_over) {
    coordinator_->hand_over_coordination();
  } else if (!info_ && coordinator_) {
    coordinator_->refuse(
        {"host " + settings_.host + ", which coordinates the job: " + notice.text, std::max(notice.exit_status, 1)});
  } else if (member_) {
    member_->announce(std::move(notice));
  }
}

const std::optional<FailureNotice>& ElasticRendezvous::first_failure() const {
  static const std::optional<FailureNotice> kNone;
  return member_ ? member_->first_failure() : kNone;
}

// Sets whether this launcher answers pings at once. If it does, its silence means that it is lost.
void ElasticRendezvous::answer_immediately(bool does) {
  answers_immediately_ = does;
  if (coordinator_) coordinator_->announce_timeout();
  if (member_) member_->announce_timeout();
}

void ElasticRendezvous::leave(bool ended_well) {
  if (!ended_well) answer_immediately(false);  // after a good end it only waits for the others
  if (ended_well) member_->end_successfully();
  leave_deadline_ = EventLoop::Clock::now() +
                    (ended_well ? EventLoop::Clock::duration(kExitBarrier) : kVerdict + settings_.node_timeout);
  leave_timer_.start_at(leave_deadline_, [] {});
  is_leaving_ = true;
}

void ElasticRendezvous::hand_over_coordination() {
  if (coordinator_ && !was_replaced_) coordinator_->hand_over_coordination();
}

bool ElasticRendezvous::has_left() const {
  if (discovery_ && !discovery_->is_release_done()) return false;
  if (join_failure()) return !coordinator_ || coordinator_->has_informed_all();
  if (!is_leaving_ || !leave_timer_.is_running()) return true;
  if (!first_failure() && !member_->have_all_ended()) return false;
  return !coordinator_ || coordinator_->have_all_acknowledged();
}

}  // namespace launcher::elastic
