// How the launchers of a job find the one that coordinates it, or that it is theirs to do.
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

// What has happened to a job.
enum class Change : std::uint8_t {
  kRound,     // a round has begun, or has ended and another one follows
  kHandOver,  // the same, and this launcher coordinates no longer
  kLoss,      // this launcher ends in the middle of a round, which the next coordinator counts as a failure
  kEnd,
};

class CoordinatorDiscovery {
 public:
  // None may end the place.
  struct Callbacks {
    // This launcher is to coordinate, and listen there; then announce() is due.
    std::function<void(const ListenAt& where, const History& history)> on_host{};
    std::function<void(UniqueFd fd)> on_found{};
    // They cannot meet there.
    std::function<void(const JoinFailure& reason)> on_impossible{};
    // This launcher may coordinate no longer: others have continued without it.
    std::function<void(const std::string& reason)> on_deposed{};
  };

  CoordinatorDiscovery() = default;
  virtual ~CoordinatorDiscovery() = default;
  CoordinatorDiscovery(const CoordinatorDiscovery&) = delete;
  CoordinatorDiscovery& operator=(const CoordinatorDiscovery&) = delete;

  // Begins, or begins again after the coordinator was lost. Where this node has taken part in a round, the job may have
  // ended since, and must not begin again. Throws LaunchError when it cannot.
  virtual void search(bool anew, bool has_taken_part) = 0;
  virtual void announce(std::uint16_t control_port) = 0;
  // What a coordinator after this one must know; at the end of the job, what nodes must know that come later.
  virtual void record(const History& history, Change change, const std::optional<JoinFailure>& end) = 0;
  // Nothing is on its way that must arrive before this launcher may end.
  virtual bool is_settled() const = 0;
  // Another launcher can take the coordinator's place.
  virtual bool is_lasting() const = 0;
  // How long a node that has lost sight of the job looks for it: the job may have ended meanwhile.
  virtual std::chrono::milliseconds search_timeout() const = 0;
  // The coordinator's host, as the ranks are to be told; known once on_host or on_found was called.
  virtual std::string host() const = 0;
  // "host0 port 29400", for messages.
  virtual std::string name() const = 0;
  // What the last attempt met, "" when nothing is known to be wrong.
  virtual std::string problem() const = 0;
  // What to look at, as a question, where nothing was found; "" when problem() says enough.
  virtual std::string advice() const = 0;
};

}  // namespace launcher::elastic
