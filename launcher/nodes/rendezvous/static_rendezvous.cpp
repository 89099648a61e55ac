#include "launcher/nodes/rendezvous/static_rendezvous.h"

#include <unistd.h>

#include <algorithm>

#include "launcher/nodes/rendezvous/listen_choice.h"
#include "launcher/nodes/store/memory_budget.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/version.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long a node that ended well waits for torchrun nodes, which report nothing else. torchrun has the same limit.
constexpr auto kForeignExitBarrier = 300s;
// No practical limit without torchrun nodes: the coordinator notices when a node is lost, so the wait ends with the
// last node.
constexpr auto kExitBarrier = 24h * 365;
// After a failure: how long a launcher waits to learn which failure was the first. A rank may write a core file during
// that time. At torchrun's store only the store's answer is awaited (kFailureTimeout).
constexpr auto kVerdict = 65s;
constexpr auto kFailureTimeout = 1s;
// How long to wait for the answer of a ddprun that has the port.
constexpr auto kDuplicateAnswer = 1s;

}  // namespace

std::string StaticRendezvous::option_conflict(const Options& options) {
  const std::string nodes = "--nnodes " + std::to_string(options.nnodes);
  if (options.node_rank >= options.nnodes) {
    return "--node_rank " + std::to_string(options.node_rank) + " is too large: with " + nodes +
           " the nodes are numbered from 0 to " + std::to_string(options.nnodes - 1);
  }
  if (options.store == Options::Store::kRank0) {
    return "--store rank0 works on one node only: several nodes use the store of node 0's launcher";
  }
  if (options.node_rank > 0 && options.master_addr.empty())
    return nodes + ": --master_addr is missing: give the name or address of node 0's host";
  if (options.node_rank > 0 && options.master_port == 0) return nodes + ": --master_port must be node 0's port, not 0";
  return "";
}

StaticRendezvous::StaticRendezvous(EventLoop& loop, Messages& messages, RendezvousSettings settings)
    : loop_(loop), messages_(messages), settings_(std::move(settings)), master_port_(settings_.master_port) {
  settings_.node_timeout = control::heartbeat_timeout(settings_.node_timeout, settings_.nnodes);
}

StaticRendezvous::~StaticRendezvous() {
  member_.reset();  // destroyed before the coordinator to which it is connected
}

std::string StaticRendezvous::rendezvous_address() const {
  const std::string host = settings_.has_master_addr ? settings_.master_addr : "host " + host_name();
  const bool must_be_named = settings_.node_rank == 0 && settings_.nnodes > 1 && !settings_.has_master_addr;
  return host + " port " + std::to_string(master_port_) +
         (must_be_named ? " (the other nodes need --master_addr " + host_name() + ")" : "");
}

void StaticRendezvous::begin_round(int restart_count) {
  info_.reset();
  answers_immediately_ = false;
  round_ = restart_count;
  leave_timer_.cancel();
  if (coordinator_) {
    open_store();
    coordinator_->begin_round(round_, *store_);
  }
  if (member_) {
    member_->begin_round(round_);
  } else if (may_host() || (!search_ && !torchrun_)) {
    begin_search();
  }
}

void StaticRendezvous::begin_search() {
  if (may_host()) {
    resolve();
  } else {
    search();
  }
}

// Until all nodes have met, node 0 may be started again: this node then finds it and joins as before.
bool StaticRendezvous::search_again(const std::string& reason) {
  if (round_ > 0 || coordinator_) return false;
  messages_.print("node 0 left before all had arrived (" + reason + "); waiting for it to return to " +
                  rendezvous_address());
  search_timer_.start_in({}, [this] {
    member_.reset();
    begin_search();
  });
  return true;
}

std::chrono::milliseconds StaticRendezvous::remaining_join_time() {
  const auto now = EventLoop::Clock::now();
  if (!join_deadline_) join_deadline_ = now + settings_.join_timeout;
  return std::chrono::ceil<std::chrono::milliseconds>(std::max<EventLoop::Clock::duration>(*join_deadline_ - now, 0s));
}

void StaticRendezvous::search() {
  search_ = std::make_unique<CoordinatorSearch>(
      loop_, settings_.master_addr, static_cast<std::uint16_t>(master_port_), settings_.nnodes,
      CoordinatorSearch::Callbacks{.on_found = [this](UniqueFd fd) { join(std::move(fd)); },
                                   .on_foreign = [this] { on_foreign_store(); },
                                   .on_other_service =
                                       [this](const std::string& text) {
                                         refuse({text, to_int(ExitStatus::kLauncherError)});
                                       }});
  has_printed_missing_nodes_ = false;
  search_timer_.start_in(std::min<EventLoop::Clock::duration>(kSilentWait, remaining_join_time()),
                         [this] { watch_search(); });
}

// Called once to print what it waits for, then when the timeout expires.
void StaticRendezvous::watch_search() {
  search_timer_.cancel();
  if (!search_) return;
  const std::string problem = search_->problem();
  const std::string node = "node 0" + (problem.empty() ? "" : " (" + problem + ")");
  const std::string name = "the name " + settings_.master_addr + " of --master_addr ";
  if (remaining_join_time() <= 0ms) {
    const std::string within = within_join_timeout(settings_.join_timeout);
    refuse({search_->is_unresolved()
                ? name + "could not be resolved" + within + ": give the name or address of node 0's host"
                : node + " did not answer at " + rendezvous_address() + within +
                      ": is ddprun running there, and are address and port right?",
            to_int(ExitStatus::kTimeout)});
    return;
  }
  if (!has_printed_missing_nodes_) {
    messages_.print(search_->is_unresolved() ? name + "cannot be resolved yet; trying again"
                                             : "waiting for " + node + " at " + rendezvous_address());
  }
  has_printed_missing_nodes_ = true;
  search_timer_.start_in(remaining_join_time(), [this] { watch_search(); });
}

void StaticRendezvous::refuse(JoinFailure reason) {
  if (coordinator_) {
    coordinator_->refuse(reason);
  } else if (!join_failure_) {
    join_failure_ = std::move(reason);
  }
}

control::Hello StaticRendezvous::hello() const {
  return {.version = kDdprunVersion,
          .host = host_name(),
          .pid = ::getpid(),
          .launcher = launcher_id_,
          .nnodes = settings_.nnodes,
          .node_rank = own_number(),
          .run_id = settings_.run_id,
          .backend = order() == NodeOrder::kByNodeRank ? "static" : "c10d",
          .max_restarts = settings_.max_restarts,
          .local_world_size = settings_.local_world_size,
          .role = settings_.role,
          .start_failure = settings_.start_failure};
}

void StaticRendezvous::join(UniqueFd fd) {
  MemberOptions options{.hello = hello(), .is_local = coordinator_ != nullptr};
  if (!coordinator_) {
    options.secret = settings_.secret;  // the node's own coordinator needs no secret
    own_address_ = local_address(fd.get());
  } else if (listen_at_.kind == ListenAt::Kind::kAddresses) {
    own_address_ = host_in(listen_at_.addresses.front());
  }
  options.coordinator = rendezvous_address();
  options.timeout = [this] { return timeout(); };
  options.is_any_ending = settings_.is_any_ending;
  options.on_message = settings_.on_message;
  options.on_start = [this](const control::Start& start) {
    has_foreign_nodes_ = start.has_foreign_nodes;
    set_info(start.place);
  };
  options.on_failure = [this](const FailureNotice& notice) { on_failure(notice, false); };
  options.on_lost = [this](const std::string& reason) { return search_again(reason); };
  options.side_channel = settings_.side_channel;
  member_ = std::make_unique<Member>(loop_, messages_, std::move(options), std::move(fd));
  member_->begin_round(round_);
  search_.reset();
}

void StaticRendezvous::on_foreign_store() {
  if (settings_.secret) {
    refuse({"a torchrun node answers at " + rendezvous_address() +
                ", and torchrun cannot check --rdzv_secret_file: run ddprun on all nodes, or leave the option out",
            to_int(ExitStatus::kLauncherError)});
    return;
  }
  has_foreign_nodes_ = true;
  torchrun_ = std::make_unique<TorchrunRound>(
      loop_, messages_,
      TorchrunRoundOptions{
          .own = {settings_.role, settings_.node_rank, settings_.local_world_size},
          .nnodes = settings_.nnodes,
          .run_id = settings_.run_id,
          .host = settings_.master_addr,
          .port = static_cast<std::uint16_t>(master_port_),
          .join_timeout = settings_.join_timeout,
          .on_joined =
              [this](const NodeRanks& ranks) {
                set_info({settings_.node_rank, settings_.nnodes, ranks});
              },
          .on_failure = [this](const FailureNotice& notice, bool is_own) { on_failure(notice, is_own); }});
  search_.reset();
}

void StaticRendezvous::set_info(const NodePlace& place) {
  duplicate_.reset();
  info_ = {.place = place,
           .master_addr = settings_.master_addr,
           .master_port = master_port_,
           .store_channel = coordinator_ || !member_ ? nullptr : member_->store_channel(),
           .own_address = own_address_};
}

std::optional<JoinFailure> StaticRendezvous::join_failure() const {
  if (member_) return member_->join_failure();
  return torchrun_ ? torchrun_->join_failure() : join_failure_;
}

bool StaticRendezvous::can_restart() const {
  return !has_foreign_nodes_;
}

void StaticRendezvous::announce(FailureNotice notice) {
  if (!info_ && coordinator_) {
    coordinator_->refuse({"node 0: " + notice.text, std::max(notice.exit_status, 1)});
  } else if (member_) {
    member_->announce(std::move(notice));
  } else if (torchrun_ && info_) {
    notice.node = settings_.node_rank;
    torchrun_->announce(notice);
  }
}

const std::optional<FailureNotice>& StaticRendezvous::first_failure() const {
  static const std::optional<FailureNotice> kNone;
  if (member_) return member_->first_failure();
  return torchrun_ ? torchrun_->first_failure() : kNone;
}

void StaticRendezvous::on_failure(const FailureNotice& notice, bool is_own) {
  if (leave_timer_.is_running()) answer_immediately(false);
  if (leave_timer_.is_running() && torchrun_) {
    set_leave_deadline(std::min(leave_deadline_, EventLoop::Clock::now() + kFailureTimeout));
  }
  if (!is_own) settings_.on_failure(notice);
}

// Sets whether this launcher answers pings at once. If it does, its silence means that it is lost.
void StaticRendezvous::answer_immediately(bool does) {
  answers_immediately_ = does;
  if (coordinator_) coordinator_->announce_timeout();
  if (member_) member_->announce_timeout();
}

// After a good end the ranks of other nodes may still use the store. After a failure the launchers must find out
// whether another node failed earlier, and all of them must know it before the store ends.
void StaticRendezvous::leave(bool ended_well) {
  if (!ended_well) answer_immediately(false);  // after a good end it only waits for the others
  if (ended_well && member_) member_->end_successfully();
  if (ended_well && torchrun_) torchrun_->leave();
  const EventLoop::Clock::duration good = has_foreign_nodes_ ? kForeignExitBarrier : kExitBarrier;
  const EventLoop::Clock::duration bad = torchrun_ ? kFailureTimeout : kVerdict + settings_.node_timeout;
  set_leave_deadline(EventLoop::Clock::now() + (ended_well ? good : bad));
}

void StaticRendezvous::set_leave_deadline(EventLoop::Clock::time_point deadline) {
  leave_timer_.cancel();
  leave_deadline_ = deadline;
  leave_timer_.start_at(deadline, [] {});
}

void StaticRendezvous::report_stop(int status) {
  if (member_) member_->report_stop(status);
}

std::optional<int> StaticRendezvous::agreed_status() const {
  return member_ ? member_->agreed_status() : std::nullopt;
}

bool StaticRendezvous::has_left() const {
  if (join_failure()) return !coordinator_ || coordinator_->has_informed_all();
  if (member_ && member_->awaits_stop()) return false;
  if (!leave_timer_.is_running()) return true;
  if (torchrun_) return first_failure() || torchrun_->has_left();
  if (!first_failure() && !member_->have_all_ended()) return false;
  return !coordinator_ || coordinator_->have_all_acknowledged();
}

// Resolves the address, to decide whether this launcher hosts the store.
void StaticRendezvous::resolve() {
  launcher::resolve(loop_, lookup_, settings_.master_addr, static_cast<std::uint16_t>(settings_.master_port),
                    [this](const std::vector<SocketAddress>& found) { on_resolved(found); });
}

// If the address belongs to another machine, a launcher that listens there is also node 0, unless the address leads
// back to this machine.
void StaticRendezvous::on_resolved(const std::vector<SocketAddress>& addresses) {
  try {
    host(addresses);
  } catch (const PortInUse& error) {
    coordinator_.reset();
    on_taken_port(error.what());
    return;
  }
  const bool is_elsewhere = settings_.has_master_addr && listen_at_.kind == ListenAt::Kind::kAnyAddress;
  if (is_elsewhere && !addresses.empty() && !is_loopback(addresses.front())) search_duplicate();
}

void StaticRendezvous::search_duplicate() {
  duplicate_ = std::make_unique<DuplicateCoordinator>(
      loop_, messages_,
      DuplicateCoordinator::Settings{settings_.master_addr, static_cast<std::uint16_t>(master_port_), hello(),
                                     settings_.secret},
      [this](const JoinFailure& reason) {
        refuse(reason);
        search_timer_.start_in({}, [this] { end_search(); });
      });
}

// If a ddprun has the port, it considers itself node 0 of this job, and both launchers must report that.
void StaticRendezvous::on_taken_port(const std::string& problem) {
  search_duplicate();
  search_timer_.start_in(kDuplicateAnswer, [this, problem] {
    const std::string other_service = duplicate_ ? duplicate_->other_service() : "";
    refuse({other_service.empty() ? problem : other_service, to_int(ExitStatus::kLauncherError)});
    end_search();
  });
}

// Called later, not from a callback of the object that it destroys.
void StaticRendezvous::end_search() {
  search_timer_.cancel();
  duplicate_.reset();
}

// Opens a new store for each round, on the same port.
void StaticRendezvous::open_store() {
  store_.reset();
  store::ServerOptions server = settings_.store;
  server.port = static_cast<std::uint16_t>(master_port_);
  server.where = listen_at_;
  store_.emplace(loop_, messages_, std::move(server));
  master_port_ = store_->port();
  store_->set(kControlPortKey, std::to_string(coordinator_->port()));
}

void StaticRendezvous::print_join_hint() {
  const std::string note = settings_.secret ? "" : open_port_note(rendezvous_address(), listen_at_);
  if (!note.empty()) messages_.print(note);
}

void StaticRendezvous::host(const std::vector<SocketAddress>& addresses) {
  ListenChoice choice = choose_listening(settings_.master_addr, addresses);
  if (!settings_.has_master_addr) choice = {{ListenAt::Kind::kAnyAddress}, ""};
  if (!choice.note.empty()) messages_.print(choice.note);
  listen_at_ = choice.where;
  print_join_hint();
  CoordinatorOptions options{.host = hello()};
  options.rendezvous_address = rendezvous_address();
  options.where = listen_at_;
  options.secret = settings_.secret;
  options.order = order();
  options.join_timeout = settings_.join_timeout;
  options.node_timeout = settings_.node_timeout;
  options.timeout = [this] { return timeout(); };
  options.side_channel = settings_.side_channel;
  coordinator_ = std::make_unique<Coordinator>(loop_, messages_, std::move(options));
  open_store();
  coordinator_->begin_round(round_, *store_);
  join(coordinator_->connect_locally());
  // Each node needs one connection, and another one while it asks the store where to connect. The rest is for the
  // launcher itself.
  const int needed = 2 * settings_.nnodes + 64;
  if (const int limit = store::descriptor_limit(); limit < needed) {
    refuse({"--nnodes " + std::to_string(settings_.nnodes) + " needs " + std::to_string(needed) +
                " open files on the node with the store, whose limit is " + std::to_string(limit) + " (ulimit -Hn)",
            to_int(ExitStatus::kLauncherError)});
  }
}

}  // namespace launcher
