#include "launcher/remote/host_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/joined.h"
#include "launcher/os/version.h"

namespace launcher::remote {
namespace {

// A larger difference of clocks is reported, because times in logs and events cannot be compared.
constexpr double kMinReportedSeconds = 0.1;
// How often a clock is asked; the fastest answer is used.
constexpr int kClocksAsked = 4;

std::string clock_line(const HostState& host) {
  if (!host.clock) return "";
  // Assumes that the host's clock was read in the middle of the round trip.
  const double middle = static_cast<double>(host.clock->asked_ns) + static_cast<double>(host.clock_round_trip_ns) / 2;
  const double ahead = (static_cast<double>(host.clock->own_ns) - middle) / 1e9;
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "%.4f s %s this machine's, within %.4f s", std::abs(ahead),
                ahead < 0 ? "behind" : "ahead of", static_cast<double>(host.clock_round_trip_ns) / 2e9);
  return (std::abs(ahead) > kMinReportedSeconds ? "  note     clock: " : "  ok       clock: ") +
         std::string(text.data()) + "\n";
}

std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

}  // namespace

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
                     [](const HostState& state) { return state.hello || state.connection_failure; });
}

bool HostStates::have_all_ended() const {
  return std::all_of(states_.begin(), states_.end(), [](const HostState& state) { return state.has_ended(); });
}

bool HostStates::are_all_finished() const {
  return std::all_of(states_.begin(), states_.end(), [](const HostState& state) { return state.is_over(); });
}

std::string HostStates::names_of_unfinished() const {
  constexpr std::size_t kMaxNames = 4;
  std::vector<std::string> names;
  for (const HostState& state : states_) {
    if (!state.has_ended()) names.push_back(state.host.name);
  }
  return (names.size() == 1 ? "host " : "hosts ") + ddp::detail::joined_some(names, kMaxNames);
}

HostCheck::HostCheck(std::size_t hosts, std::function<void(Frame)> send) : texts_(hosts), send_(std::move(send)) {}

void HostCheck::ask_clock(std::uint32_t host) {
  send_({Kind::kAskClock, host, encode(Clock{wall_clock_ns(), 0})});
}

void HostCheck::on_clock(HostState& host, std::string_view bytes) {
  const auto clock = decode<Clock>(bytes);
  if (!clock) return;
  const std::uint64_t took = wall_clock_ns() - clock->asked_ns;
  if (!host.clock || took < host.clock_round_trip_ns) {
    host.clock = clock;
    host.clock_round_trip_ns = took;
  }
  if (++host.clocks < kClocksAsked) ask_clock(host.host.number);
}

void HostCheck::on_output(std::uint32_t host, std::uint32_t stream, std::string_view bytes) {
  texts_.at(host) += bytes;
  send_({Kind::kCredit, host, encode_amount(stream) + encode_amount(static_cast<std::uint32_t>(bytes.size()))});
}

CheckReport HostCheck::report(const HostStates& hosts) const {
  CheckReport report;
  std::string unfit;
  for (const HostState& host : hosts.all()) {
    const std::size_t number = host.host.number;
    report.text += "host " + host.host.name + " (node " + std::to_string(number) + ")\n";
    if (host.hello) {
      const std::string way = host.host.is_local ? "this machine" : "by ssh";
      report.text += "  ok       connection: " + way + ", its name is " + host.hello->host_name + ", ddprun " +
                     kDdprunVersion + "\n" + clock_line(host);
    }
    report.text += indented(texts_.at(number));
    std::string problem;
    if (host.connection_failure) {
      problem = (host.hello ? "start: " : "connection: ") + *host.connection_failure;
    } else if (!host.is_over()) {
      problem = "answer: it did not arrive in time";
    }
    if (!problem.empty()) report.text += "  PROBLEM  " + problem + "\n";
    const bool is_fit = problem.empty() && host.ending && host.ending->status == 0;
    if (!is_fit) ddp::detail::append_item(unfit, host.host.name);
  }
  report.can_run = unfit.empty();
  report.text += report.can_run ? "A job can run.\n" : "No job can run, because of " + unfit + ".\n";
  return report;
}

}  // namespace launcher::remote
