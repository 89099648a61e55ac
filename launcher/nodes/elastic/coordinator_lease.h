// The key of the launcher that coordinates: it belongs to a lease, which the launcher renews. When it is gone, so is
// the key, and another launcher takes it.
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
  // None may end the object.
  struct Callbacks {
    // It is this launcher's; with the history of the job, if it has one.
    std::function<void(const std::optional<std::string>& history)> on_taken{};
    // Another launcher was faster, or etcd did not answer.
    std::function<void()> on_missed{};
    // It is this launcher's no longer.
    std::function<void(const std::string& reason)> on_lost{};
  };
  enum class Release : std::uint8_t {
    kEndOfJob,  // for a moment it is known how the job has ended
    kHandOver,  // the history is written before
    kLoss,      // the history stays as it is
  };

  // How long the key stays when it is not renewed, where nodes may be silent for `node_timeout`.
  static std::chrono::seconds lease_for(std::chrono::milliseconds node_timeout);

  // References must outlive the object.
  CoordinatorLease(EventLoop& loop, EtcdClient& etcd, const std::string& job, std::chrono::seconds lease,
                   Callbacks callbacks);

  const std::string& key() const { return key_; }
  const std::string& history_key() const { return history_key_; }
  const std::string& end_key() const { return end_key_; }
  const CoordinatorRecord& record() const { return record_; }
  bool is_own() const { return phase_ == Phase::kHeld; }

  // Tries to become the owner, on these conditions.
  void take(CoordinatorRecord record, std::vector<EtcdCondition> conditions);
  // What the key, or the history, is to say from now on.
  void set_port(std::uint16_t port);
  void write_history(std::string history);
  // How the job has ended, when it is released for that.
  void write_end(std::string end) { end_ = std::move(end); }
  void release(Release how);
  // No write is pending that must not get lost, or the time for it has expired.
  bool is_settled() const { return phase_ != Phase::kReleasing; }
  // Forgets it, and what is on its way.
  void drop();

 private:
  using Clock = EventLoop::Clock;
  enum class Phase : std::uint8_t { kNone, kTaking, kHeld, kReleasing };

  void step();
  void grant();
  bool grant_missing();
  void grant_memory(std::int64_t& lease, std::chrono::seconds time);
  void renew();
  void renew_memory();
  void write();
  void restore();
  void fail_to_take();
  void on_written(const std::optional<EtcdOutcome>& outcome, int sent);
  void on_conditions_failed(const EtcdOutcome& outcome);
  void become_owner(const EtcdOutcome& outcome);
  void lose(const std::string& reason);
  bool is_end_of_job() const { return phase_ == Phase::kReleasing && how_ == Release::kEndOfJob; }
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
  Release how_ = Release::kEndOfJob;
  bool is_busy_ = false;  // a request is on its way
  CoordinatorRecord record_;
  std::vector<EtcdCondition> conditions_;  // to write it the first time
  std::int64_t lease_ = 0;                 // of the key
  std::int64_t memory_ = 0;                // the lease of the history
  std::int64_t end_memory_ = 0;            // of how the job has ended
  bool is_written_ = false;
  bool is_up_to_date_ = false;  // what etcd has, as far as this launcher knows
  int changes_ = 0;             // of what is to be written
  bool has_new_record_ = false;
  std::string history_;
  bool has_new_history_ = false;
  std::string end_;
  Clock::time_point granted_{};
  Clock::time_point renewed_{};
  Clock::time_point memory_renewed_{};
  Clock::time_point deadline_{};  // of releasing
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::elastic
