#include "launcher/nodes/elastic/coordinator_lease.h"

#include <algorithm>
#include <utility>

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;
using Condition = EtcdCondition::Kind;
using Operation = EtcdOperation::Kind;

// Longer than an interruption of the network that a job survives (10 s), plus a renewal before it and an answer after
// it.
constexpr auto kLeaseTime = 15s;
constexpr auto kRecoveryTime = 5s;
// How often the lease is renewed, and how long before its end the launcher stops coordinating.
constexpr auto kRenewalInterval = 1s;
constexpr auto kRetryPause = 250ms;
// How long an ending launcher tries to report to etcd that the job has ended or that another coordinator may take over.
constexpr auto kReleaseTimeout = 10s;
// How long etcd keeps the history of a job that has no coordinator.
constexpr auto kHistoryLifetime = 24h;
constexpr auto kHistoryRenewalInterval = 1h;
// How long etcd keeps the end of a job. Nodes that were cut off search for the job for a shorter time.
constexpr auto kEndLifetime = 60s;

}  // namespace

std::chrono::seconds CoordinatorLease::lease_for(std::chrono::milliseconds node_timeout) {
  return std::max<std::chrono::seconds>(kLeaseTime,
                                        std::chrono::ceil<std::chrono::seconds>(node_timeout) + kRecoveryTime);
}

CoordinatorLease::CoordinatorLease(EventLoop& loop, EtcdClient& etcd, const std::string& job,
                                   std::chrono::seconds lease, Callbacks callbacks)
    : loop_(loop),
      etcd_(etcd),
      key_(key_path(job, "coordinator")),
      history_key_(key_path(job, "history")),
      end_key_(key_path(job, "end")),
      lease_time_(lease),
      callbacks_(std::move(callbacks)) {}

void CoordinatorLease::drop() {
  timer_.cancel();
  etcd_.cancel();
  phase_ = Phase::kNone;
  is_busy_ = false;
}

void CoordinatorLease::take(CoordinatorRecord record, std::vector<EtcdCondition> conditions) {
  drop();
  phase_ = Phase::kAcquiring;
  record_ = std::move(record);
  conditions_ = std::move(conditions);
  lease_ = 0;
  history_lease_ = end_lease_ = 0;
  is_written_ = is_up_to_date_ = false;
  history_.clear();
  has_new_history_ = false;
  has_new_record_ = true;
  step();
}

void CoordinatorLease::set_port(std::uint16_t port) {
  record_.port = port;
  has_new_record_ = true;
  is_up_to_date_ = false;
  ++changes_;
  step();
}

void CoordinatorLease::write_history(std::string history) {
  history_ = std::move(history);
  has_new_history_ = true;
  is_up_to_date_ = false;
  ++changes_;
  step();
}

void CoordinatorLease::release(Release how) {
  if (phase_ != Phase::kHeld) return;
  release_kind_ = how;
  // A key that this launcher does not own needs no release.
  phase_ = is_written_ ? Phase::kReleasing : Phase::kNone;
  ++changes_;
  deadline_ = Clock::now() + kReleaseTimeout;
  step();
}

bool CoordinatorLease::must_renew(Clock::time_point now) const {
  return phase_ == Phase::kHeld && is_written_ && now - renewed_ >= kRenewalInterval;
}

// Does what is due next; each reply calls it again.
void CoordinatorLease::step() {
  if (is_busy_ || phase_ == Phase::kNone) return;
  const auto now = Clock::now();
  if (phase_ == Phase::kReleasing && now >= deadline_) {
    phase_ = Phase::kNone;
  } else if (phase_ == Phase::kHeld && now - renewed_ > lease_time_ - kRenewalInterval) {
    // A launcher that was frozen must check its own clock before it asks etcd.
    const std::string problem = etcd_.problem();
    lose(problem.empty() ? "this launcher was delayed" : "etcd: " + problem);
  } else if (must_renew(now)) {  // before everything that may wait for etcd
    renew();
  } else if (grant_missing()) {
    return;
  } else if (history_lease_ != 0 && phase_ == Phase::kHeld && now - history_renewed_ >= kHistoryRenewalInterval) {
    renew_history_lease();
  } else if (!is_up_to_date_ || phase_ == Phase::kReleasing) {
    write();
  } else {
    timer_.start_in(renewed_ + kRenewalInterval - now, [this] { step(); });
  }
}

// Requests a lease that the next write needs. Returns false when all of them exist.
bool CoordinatorLease::grant_missing() {
  if (lease_ == 0) {
    grant();
  } else if (is_end_of_job() && !end_.empty() && end_lease_ == 0) {
    grant_record_lease(end_lease_, kEndLifetime);
  } else if (!is_end_of_job() && has_new_history_ && history_lease_ == 0) {
    grant_record_lease(history_lease_, kHistoryLifetime);
  } else {
    return false;
  }
  return true;
}

void CoordinatorLease::grant() {
  is_busy_ = true;
  const auto asked = Clock::now();
  etcd_.grant(lease_time_, [this, asked](const std::optional<EtcdLease>& lease) {
    is_busy_ = false;
    if (lease) {
      lease_ = lease->id;
      granted_ = asked;
      step();
    } else if (phase_ == Phase::kAcquiring) {
      fail_to_acquire();
    } else {
      timer_.start_in(kRetryPause, [this] { step(); });
    }
  });
}

void CoordinatorLease::grant_record_lease(std::int64_t& lease, std::chrono::seconds time) {
  is_busy_ = true;
  etcd_.grant(time, [this, &lease](const std::optional<EtcdLease>& granted) {
    is_busy_ = false;
    if (!granted) {
      timer_.start_in(kRetryPause, [this] { step(); });
      return;
    }
    lease = granted->id;
    history_renewed_ = Clock::now();
    step();
  });
}

void CoordinatorLease::renew() {
  is_busy_ = true;
  const auto asked = Clock::now();
  etcd_.keep_alive(lease_, [this, asked](const std::optional<EtcdLease>& lease) {
    is_busy_ = false;
    if (!lease) {
      timer_.start_in(kRetryPause, [this] { step(); });
    } else if (lease->left == 0s) {
      restore();
    } else {
      renewed_ = asked;
      // Another launcher may have taken the key although the lease has not expired.
      is_up_to_date_ = false;
      step();
    }
  });
}

void CoordinatorLease::renew_history_lease() {
  is_busy_ = true;
  etcd_.keep_alive(history_lease_, [this](const std::optional<EtcdLease>& lease) {
    is_busy_ = false;
    if (lease) history_renewed_ = Clock::now();
    if (lease && lease->left == 0s) {
      history_lease_ = 0;
      write_history(std::exchange(history_, ""));
    } else {
      lease ? step() : timer_.start_in(kRetryPause, [this] { step(); });
    }
  });
}

EtcdTransaction CoordinatorLease::transaction() const {
  EtcdTransaction transaction;
  transaction.conditions = conditions_;
  if (is_written_) transaction.conditions = {{Condition::kLease, key_, lease_}};
  std::vector<EtcdOperation>& then = transaction.then;
  const bool is_releasing = phase_ == Phase::kReleasing;
  if (is_releasing) {
    then.push_back({Operation::kDelete, key_});
  } else if (has_new_record_) {
    then.push_back({Operation::kWrite, key_, to_json(record_), lease_});
  }
  if (is_end_of_job()) {
    then.push_back({Operation::kDelete, history_key_});
    if (!end_.empty()) then.push_back({Operation::kWrite, end_key_, end_, end_lease_});
  } else if (has_new_history_) {
    then.push_back({Operation::kWrite, history_key_, history_, history_lease_});
  }
  transaction.otherwise.push_back({Operation::kRead, key_});
  if (phase_ == Phase::kAcquiring) {
    then.push_back({Operation::kDelete, end_key_});  // the end of an earlier job of this name
    then.push_back({Operation::kRead, history_key_});
    transaction.otherwise.push_back({Operation::kRead, history_key_});
  }
  return transaction;
}

void CoordinatorLease::write() {
  is_busy_ = true;
  etcd_.carry_out(transaction(), [this, sent = changes_](const std::optional<EtcdOutcome>& outcome) {
    is_busy_ = false;
    on_written(outcome, sent);
  });
}

void CoordinatorLease::on_written(const std::optional<EtcdOutcome>& outcome, int sent) {
  const bool is_useless = !outcome || outcome->is_lease_missing;
  if (is_useless && phase_ == Phase::kAcquiring) {
    fail_to_acquire();
  } else if (is_useless) {
    if (outcome) history_lease_ = end_lease_ = 0;  // the next renewal checks the key's own lease
    timer_.start_in(kRetryPause, [this] { step(); });
  } else if (!outcome->succeeded) {
    on_conditions_failed(*outcome);
  } else if (phase_ == Phase::kReleasing && sent == changes_) {
    phase_ = Phase::kNone;
  } else {
    if (!std::exchange(is_written_, true)) renewed_ = granted_;
    if (sent == changes_) {
      has_new_record_ = has_new_history_ = false;
      is_up_to_date_ = true;
    }
    phase_ == Phase::kAcquiring ? become_owner(*outcome) : step();
  }
}

void CoordinatorLease::on_conditions_failed(const EtcdOutcome& outcome) {
  const auto entry = outcome.found.find(key_);
  const bool is_own = entry != outcome.found.end() && entry->second.lease == lease_;
  if (phase_ == Phase::kReleasing) {
    phase_ = Phase::kNone;  // the lease has expired, or another launcher has the key
  } else if (is_own) {      // the reply to the first attempt was lost
    if (!std::exchange(is_written_, true)) renewed_ = granted_;
    phase_ == Phase::kAcquiring ? become_owner(outcome) : step();
  } else if (phase_ == Phase::kAcquiring) {
    fail_to_acquire();
  } else if (entry == outcome.found.end()) {
    restore();
  } else {
    lose("another node has taken its place");
  }
}

// Writes the key again. It has disappeared before its lease expired, so etcd has lost its data, and no other launcher
// has become coordinator.
void CoordinatorLease::restore() {
  if (phase_ == Phase::kReleasing) {
    phase_ = Phase::kNone;
    return;
  }
  is_written_ = is_up_to_date_ = false;
  lease_ = history_lease_ = end_lease_ = 0;
  conditions_ = {{Condition::kAbsent, key_}};
  has_new_record_ = true;
  has_new_history_ = !history_.empty();
  ++changes_;
  step();
}

void CoordinatorLease::become_owner(const EtcdOutcome& outcome) {
  phase_ = Phase::kHeld;
  const auto history = outcome.found.find(history_key_);
  callbacks_.on_taken(history == outcome.found.end() ? std::nullopt : std::optional(history->second.value));
  step();
}

void CoordinatorLease::fail_to_acquire() {
  phase_ = Phase::kNone;
  callbacks_.on_missed();
}

void CoordinatorLease::lose(const std::string& reason) {
  phase_ = Phase::kNone;
  callbacks_.on_lost(reason);
}

}  // namespace launcher::elastic
