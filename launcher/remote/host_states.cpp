#include "launcher/remote/host_states.h"

#include <algorithm>

namespace launcher::remote {

HostStates::HostStates(const std::vector<JobNode>& nodes) {
  for (const JobNode& node : nodes) {
    states_.push_back({.host = {static_cast<std::uint32_t>(states_.size()), node.host, node.is_local}});
  }
}

HostState* HostStates::find(std::uint32_t number) {
  return number < states_.size() ? &states_[number] : nullptr;
}

std::vector<NamedHost> HostStates::hosts() const {
  std::vector<NamedHost> hosts;
  for (const HostState& state : states_) hosts.push_back(state.host);
  return hosts;
}

std::map<std::uint32_t, Hello> HostStates::hellos() const {
  std::map<std::uint32_t, Hello> hellos;
  for (const HostState& state : states_) {
    if (state.hello) hellos.emplace(state.host.number, *state.hello);
  }
  return hellos;
}

bool HostStates::have_all_answered() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](const HostState& state) { return state.hello || state.trouble; });
}

bool HostStates::have_all_ended() const {
  return std::all_of(states_.begin(), states_.end(), [](const HostState& state) { return state.has_ended(); });
}

bool HostStates::are_all_over() const {
  return std::all_of(states_.begin(), states_.end(), [](const HostState& state) { return state.is_over(); });
}

std::string HostStates::names_of_unfinished() const {
  constexpr std::size_t kMostNames = 4;
  std::vector<std::string> names;
  for (const HostState& state : states_) {
    if (!state.has_ended()) names.push_back(state.host.name);
  }
  const std::size_t shown = std::min(names.size(), kMostNames);
  std::string text = names.size() == 1 ? "host " : "hosts ";
  for (std::size_t i = 0; i < shown; ++i) text.append(i == 0 ? "" : ", ").append(names[i]);
  return names.size() > shown ? text + " and " + std::to_string(names.size() - shown) + " more" : text;
}

}  // namespace launcher::remote
