// The etcd key of the coordinator. It belongs to a lease, which the launcher renews. When the launcher is lost, the
// lease expires, etcd deletes the key, and another launcher can take it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/nodes/elastic/etcd_api.h"
#include "launcher/nodes/elastic/etcd_keys.h"
#include "launcher/os/system/event_loop.h"

namespace launcher::elastic {

class CoordinatorLease {
 public:
  // A callback must not destroy the object.
  struct Callbacks {
    // This launcher now owns the key. `history` is that of the job, if there is one.
    std::function<void(const std::optional<std::string>& history)> on_taken{};
    // Another launcher was faster, or etcd did not answer.
    std::function<void()> on_missed{};
    // This launcher no longer owns the key.
    std::function<void(const std::string& reason)> on_lost{};
  };
  enum class Release : std::uint8_t {
    kEndOfJob,  // etcd keeps for a short time how the job has ended
    kHandOver,  // the history is written before the key is deleted
    kLoss,      // the history remains unchanged
  };

  // The time to live of the key without renewal, when nodes may be silent for `node_timeout`.
  static std::chrono::seconds lease_for(std::chrono::milliseconds node_timeout);

  // References must outlive the object.
  CoordinatorLease(EventLoop& loop, EtcdClient& etcd, const std::string& job, std::chrono::seconds lease,
                   Callbacks callbacks);

  const std::string& key() const { return key_; }
  const std::string& history_key() const { return history_key_; }
  const std::string& end_key() const { return end_key_; }
  const CoordinatorRecord& record() const { return record_; }
  bool is_own() const { return phase_ == Phase::kHeld; }

  // Tries to become the owner of the key on these conditions.
  void take(CoordinatorRecord record, std::vector<EtcdCondition> conditions);
  // Changes what the key or the history contains.
  void set_port(std::uint16_t port);
  void write_history(std::string history);
  // Sets how the job has ended; release() writes it.
  void write_end(std::string end) { end_ = std::move(end); }
  void release(Release how);
  // True when no important write is pending, or when the time for it has expired.
  bool is_release_done() const { return phase_ != Phase::kReleasing; }
  // Gives the key up without a request, and cancels pending requests.
  void drop();

 private:
  using Clock = EventLoop::Clock;
  enum class Phase : std::uint8_t { kNone, kAcquiring, kHeld, kReleasing };

  void step();
  void grant();
  bool grant_missing();
  void grant_record_lease(std::int64_t& lease, std::chrono::seconds time);
  void renew();
  void renew_history_lease();
  void write();
  void restore();
  void fail_to_acquire();
  void on_written(const std::optional<EtcdOutcome>& outcome, int sent);
  void on_conditions_failed(const EtcdOutcome& outcome);
  void become_owner(const EtcdOutcome& outcome);
  void lose(const std::string& reason);
  bool is_end_of_job() const { return phase_ == Phase::kReleasing && release_kind_ == Release::kEndOfJob; }
  bool must_renew(Clock::time_point now) const;
  EtcdTransaction transaction() const;

  EventLoop& loop_;
  EtcdClient& etcd_;
  std::string key_;
  std::string history_key_;
  std::string end_key_;
  std::chrono::seconds lease_time_;
  Callbacks callbacks_;
  Phase phase_ = Phase::kNone;
  Release release_kind_ = Release::kEndOfJob;
  bool is_busy_ = false;  // a request is on its way
  CoordinatorRecord record_;
  std::vector<EtcdCondition> conditions_;  // for the first write of the key
  std::int64_t lease_ = 0;                 // the key's lease
  std::int64_t history_lease_ = 0;         // the lease of the history
  std::int64_t end_lease_ = 0;             // the lease of the end of the job
  bool is_written_ = false;
  bool is_up_to_date_ = false;  // true when etcd has the latest values, as far as this launcher knows
  int changes_ = 0;             // counts changes of the values
  bool has_new_record_ = false;
  std::string history_;
  bool has_new_history_ = false;
  std::string end_;
  Clock::time_point granted_{};
  Clock::time_point renewed_{};
  Clock::time_point history_renewed_{};
  Clock::time_point deadline_{};  // when a release is given up
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::elastic
