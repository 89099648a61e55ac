// --check of several hosts: the results of their ddpruns, and the differences of their clocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_nodes.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

struct HostState {
  NamedHost host{};
  std::optional<Hello> hello = std::nullopt;
  std::optional<std::string> connection_failure = std::nullopt;  // why the host cannot be reached, or was lost
  bool was_tried_directly = false;
  std::optional<Ending> ending = std::nullopt;  // how its ddprun ended
  std::array<bool, 2> is_output_over{};         // standard output, standard error
  std::optional<Clock> clock = std::nullopt;    // the fastest answer
  std::uint64_t clock_round_trip_ns = 0;
  int clocks = 0;

  // Its ddprun has ended; its output may still arrive.
  bool has_ended() const { return connection_failure || ending; }
  // Nothing more will arrive from it.
  bool is_over() const { return connection_failure || (ending && is_output_over[0] && is_output_over[1]); }
};

class HostStates {
 public:
  explicit HostStates(const std::vector<JobNode>& nodes);

  std::vector<HostState>& all() { return states_; }
  const std::vector<HostState>& all() const { return states_; }
  // Null for an unknown number.
  HostState* find(std::uint32_t number);
  std::vector<NamedHost> hosts() const;
  std::map<std::uint32_t, Hello> hellos() const;

  // Every host has answered, or cannot be reached.
  bool have_all_answered() const;
  bool have_all_ended() const;
  bool are_all_finished() const;
  // The hosts that have not ended: "host b", "hosts b, c" or "hosts b, c, d, e and 7 more".
  std::string names_of_unfinished() const;

 private:
  std::vector<HostState> states_;
};

struct CheckReport {
  std::string text{};
  bool can_run = false;
};

class HostCheck {
 public:
  // `send` sends a frame to a host.
  HostCheck(std::size_t hosts, std::function<void(Frame)> send);

  void ask_clock(std::uint32_t host);
  void on_clock(HostState& host, std::string_view bytes);
  void on_output(std::uint32_t host, std::uint32_t stream, std::string_view bytes);
  CheckReport report(const HostStates& hosts) const;

 private:
  std::vector<std::string> texts_;  // by host
  std::function<void(Frame)> send_;
};

}  // namespace launcher::remote
