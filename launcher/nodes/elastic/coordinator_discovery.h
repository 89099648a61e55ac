// How the launchers of a job find the launcher that coordinates it, or learn that they must coordinate it themselves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "launcher/nodes/elastic/rounds.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher::elastic {

// Events of a job that its coordinator records.
enum class Change : std::uint8_t {
  kRound,     // a round has begun, or has ended and another one follows
  kHandOver,  // a round has ended and another coordinator takes over
  kLoss,      // this launcher ends during a round, which the next coordinator counts as a failure
  kEnd,
};

class CoordinatorDiscovery {
 public:
  // A callback must not destroy the discovery.
  struct Callbacks {
    // This launcher must coordinate and listen at `where`. It then calls announce().
    std::function<void(const ListenAt& where, const History& history)> on_host{};
    std::function<void(UniqueFd fd)> on_found{};
    // The nodes cannot meet, for this reason.
    std::function<void(const JoinFailure& reason)> on_impossible{};
    // This launcher must stop coordinating, as the other nodes have continued without it.
    std::function<void(const std::string& reason)> on_replaced{};
  };

  CoordinatorDiscovery() = default;
  virtual ~CoordinatorDiscovery() = default;
  CoordinatorDiscovery(const CoordinatorDiscovery&) = delete;
  CoordinatorDiscovery& operator=(const CoordinatorDiscovery&) = delete;

  // Begins a search, or a new one after the coordinator was lost (`anew`). If this node has taken part in a round, the
  // job may have ended since then, and must not begin again. Throws LaunchError when a search is impossible.
  virtual void search(bool anew, bool has_taken_part) = 0;
  virtual void announce(std::uint16_t control_port) = 0;
  // Records what the next coordinator must know; at the end of the job also how the job ended, for nodes that arrive
  // later.
  virtual void record(const History& history, Change change, const std::optional<JoinFailure>& end) = 0;
  // True when no write is pending that must be done before this launcher may end.
  virtual bool is_release_done() const = 0;
  // Whether another launcher can become coordinator when this one is lost.
  virtual bool is_lasting() const = 0;
  // How long a node that has lost its connection to the job searches for it. The job may end during that time.
  virtual std::chrono::milliseconds search_timeout() const = 0;
  // The coordinator's host name or address for the ranks; known once on_host or on_found was called.
  virtual std::string host() const = 0;
  // "host0 port 29400", for messages.
  virtual std::string name() const = 0;
  // The problem of the last attempt; "" when none is known.
  virtual std::string problem() const = 0;
  // A question that tells the user what to check when nothing was found; "" when problem() is enough.
  virtual std::string advice() const = 0;
};

}  // namespace launcher::elastic
