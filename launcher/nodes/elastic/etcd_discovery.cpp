#include "launcher/nodes/elastic/etcd_discovery.h"

#include <utility>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;
using Condition = EtcdCondition::Kind;
using Operation = EtcdOperation::Kind;

// How often a launcher that searches for the coordinator asks etcd. A watch of etcd would need a check that its
// connection still works. A search is short, and a running job does not ask.
constexpr auto kQueryInterval = 200ms;
constexpr auto kReachable = 1s;
// etcd reports the remaining time of a lease in whole seconds. If the end moves by more than this, the lease was
// renewed.
constexpr auto kRenewed = 1900ms;
// A lost coordinator is considered dead when its address refuses this many connections, at one attempt per query.
constexpr int kMinRefusals = 2;
// A program that has answered for so long at this port will not be replaced by etcd.
constexpr auto kForeign = 3s;
constexpr const char* kForeignAdvice = "; --rdzv_endpoint names the HOST:PORT of etcd";

ListenAt listen_at(const std::string& host) {
  const auto addresses = numeric_addresses(host, 0);
  if (addresses.empty() || !is_own_address(addresses.front())) return {ListenAt::Kind::kAnyAddress};
  return {ListenAt::Kind::kAddresses, addresses};
}

}  // namespace

EtcdDiscovery::EtcdDiscovery(EventLoop& loop, const RendezvousSettings& settings, Callbacks callbacks)
    : loop_(loop),
      settings_(settings),
      callbacks_(std::move(callbacks)),
      etcd_(loop, settings.master_addr, static_cast<std::uint16_t>(settings.master_port)),
      own_lease_(loop, etcd_, settings.run_id, CoordinatorLease::lease_for(settings.node_timeout),
                 {.on_taken = [this](const std::optional<std::string>& history) { coordinate(history); },
                  .on_missed = [this] { query_later(); },
                  .on_lost =
                      [this](const std::string& reason) {
                        callbacks_.on_replaced("this node no longer coordinates the job: " + reason);
                      }}) {}

std::string EtcdDiscovery::name() const {
  return "etcd at " + settings_.master_addr + " port " + std::to_string(settings_.master_port);
}

std::string EtcdDiscovery::problem() const {
  return etcd_.problem().empty() ? problem_ : "etcd: " + etcd_.problem();
}

std::string EtcdDiscovery::advice() const {
  return etcd_.problem().empty() ? "" : "is etcd running there, and are address and port right?";
}

void EtcdDiscovery::search(bool anew, bool has_taken_part) {
  own_lease_.drop();
  connector_.reset();
  probe_.reset();
  is_repeated_search_ = anew;
  has_taken_part_ = has_taken_part;
  lost_token_ = anew ? record_.token : "";
  first_end_.reset();
  refusals_ = 0;
  last_contact_ = Clock::now();
  foreign_since_.reset();
  problem_.clear();
  timer_.start_in(0ms, [this] { query(); });
}

void EtcdDiscovery::query_later() {
  timer_.start_in(kQueryInterval, [this] { query(); });
}

void EtcdDiscovery::query() {
  connector_.reset();
  etcd_.carry_out({.then = {{Operation::kRead, own_lease_.key()},
                            {Operation::kRead, own_lease_.history_key()},
                            {Operation::kRead, own_lease_.end_key()}}},
                  [this](const std::optional<EtcdOutcome>& outcome) { on_query_reply(outcome); });
}

void EtcdDiscovery::on_query_reply(const std::optional<EtcdOutcome>& outcome) {
  if (!outcome) {
    if (!is_repeated_search_ && (etcd_.is_unusable() || is_only_foreign())) {
      callbacks_.on_impossible({name() + ": " + etcd_.problem() + (etcd_.is_unusable() ? "" : kForeignAdvice),
                                to_int(ExitStatus::kLauncherError)});
    } else {
      on_no_reply();
    }
    return;
  }
  last_contact_ = Clock::now();
  foreign_since_.reset();
  const auto entry = outcome->found.find(own_lease_.key());
  if (entry == outcome->found.end()) {
    on_free(*outcome);
  } else {
    on_occupied(entry->second);
  }
}

bool EtcdDiscovery::is_only_foreign() {
  if (!etcd_.is_foreign()) {
    foreign_since_.reset();
  } else if (!foreign_since_) {
    foreign_since_ = Clock::now();
  }
  return foreign_since_ && Clock::now() - *foreign_since_ >= kForeign;
}

// Handles a request without an answer. An etcd that is restarting refuses connections for a short time. If there is no
// answer at all, this node is cut off, and the others decide without it.
void EtcdDiscovery::on_no_reply() {
  const auto now = Clock::now();
  if (etcd_.was_refused()) last_contact_ = now;
  if (has_taken_part_ && now - last_contact_ > search_timeout()) {
    callbacks_.on_impossible({"this node was cut off from the job: there was no answer from " + name() + " for " +
                                  std::to_string(search_timeout() / 1s) + " s (" + etcd_.problem() + ")",
                              1});
  } else {
    query_later();
  }
}

// Handles a job without a coordinator. If the job has ended, etcd has the reason; if it continues, etcd has its
// history.
void EtcdDiscovery::on_free(const EtcdOutcome& outcome) {
  if (has_taken_part_ && !outcome.found.contains(own_lease_.history_key())) {
    const auto entry = outcome.found.find(own_lease_.end_key());
    const auto end = entry == outcome.found.end() ? std::nullopt : parse_end(entry->second.value);
    callbacks_.on_impossible(end.value_or(JoinFailure{"the job has ended without this node", 1}));
  } else if (settings_.start_failure) {
    problem_ = "no node coordinates the job yet, and this node cannot take part";
    query_later();
  } else {
    take({{Condition::kAbsent, own_lease_.key()}});
  }
}

void EtcdDiscovery::on_occupied(const EtcdEntry& entry) {
  const auto record = parse_coordinator_record(entry.value);
  if (!record) {
    problem_ = "its key " + own_lease_.key() + " does not name the coordinator";
    query_later();
    return;
  }
  if (own_tokens_.contains(record->token)) {  // from an earlier search, or the reply to an attempt was lost
    take({{Condition::kRevision, own_lease_.key(), entry.revision}});
    return;
  }
  record_ = *record;
  problem_ = "the coordinator on host " + record->host + " does not answer";
  if (record->port == 0) {
    query_later();
  } else if (record->token == lost_token_) {
    check_lost_coordinator(entry);
  } else {
    connect();
  }
}

void EtcdDiscovery::connect() {
  probe_.reset();
  connector_ = std::make_unique<Connector>(loop_, record_.host, record_.port, [this](UniqueFd fd) {
    timer_.cancel();
    callbacks_.on_found(std::move(fd));
  });
  timer_.start_in(kReachable, [this] { query(); });
}

// The coordinator that this launcher has lost still owns its key. If it is alive, it renews its lease. If it was
// killed, its address refuses connections, and the key can be taken before the lease expires.
void EtcdDiscovery::check_lost_coordinator(const EtcdEntry& entry) {
  const bool is_refused = probe_ && probe_->was_refused();
  refusals_ = is_refused ? refusals_ + 1 : 0;
  if (refusals_ >= kMinRefusals && !settings_.start_failure) {
    take({{Condition::kRevision, own_lease_.key(), entry.revision}});
    return;
  }
  if (!probe_) probe_ = std::make_unique<Connector>(loop_, record_.host, record_.port, [](const UniqueFd& /*fd*/) {});
  etcd_.time_to_live(entry.lease, [this](const std::optional<EtcdLease>& lease) {
    if (lease && lease->left > 0s) {
      on_time_left(lease->left);
    } else {
      query_later();
    }
  });
}

void EtcdDiscovery::on_time_left(std::chrono::seconds left) {
  const auto end = Clock::now() + left;
  if (!first_end_) first_end_ = end;
  if (end - *first_end_ < kRenewed) {
    query_later();
    return;
  }
  lost_token_.clear();
  connect();
}

void EtcdDiscovery::take(std::vector<EtcdCondition> conditions) {
  if (has_taken_part_) conditions.push_back({Condition::kPresent, own_lease_.history_key()});
  probe_.reset();
  const std::string token = random_id();
  own_tokens_.insert(token);
  own_lease_.take({token, settings_.local_addr.empty() ? etcd_.own_address() : settings_.local_addr, 0},
                  std::move(conditions));
}

void EtcdDiscovery::coordinate(const std::optional<std::string>& history) {
  record_ = own_lease_.record();
  const Clocks now{Clock::now(), std::chrono::system_clock::now()};
  const auto stored = history ? parse_history(*history, now) : std::nullopt;
  const History known = stored ? history_for_successor(*stored, now.steady) : History{};
  // The history is written together with the port. So once the others can find this launcher, the history is complete
  // even if this launcher is lost.
  own_lease_.write_history(to_json(known, settings_.host, now));
  callbacks_.on_host(listen_at(record_.host), known);
}

void EtcdDiscovery::record(const History& history, Change change, const std::optional<JoinFailure>& end) {
  if (!own_lease_.is_own()) return;
  const Clocks now{Clock::now(), std::chrono::system_clock::now()};
  // A launcher that hands over its role is not lost. Before the first round there is no history to continue.
  const bool is_end = change == Change::kEnd || (change == Change::kHandOver && history.rounds == 0);
  const bool is_stored = change == Change::kRound || change == Change::kHandOver;
  if (is_stored && !is_end)
    own_lease_.write_history(to_json(history, change == Change::kHandOver ? "" : settings_.host, now));
  if (is_end && end) own_lease_.write_end(to_json(*end));
  if (is_end) own_lease_.release(CoordinatorLease::Release::kEndOfJob);
  if (change == Change::kHandOver && !is_end) own_lease_.release(CoordinatorLease::Release::kHandOver);
  if (change == Change::kLoss) own_lease_.release(CoordinatorLease::Release::kLoss);
}

}  // namespace launcher::elastic
