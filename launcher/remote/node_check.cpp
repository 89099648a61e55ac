#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/os/network/connector.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/shell_quote.h"
#include "launcher/plan/local_ranks.h"
#include "launcher/plan/program.h"
#include "launcher/remote/commands.h"

namespace launcher::remote {
namespace {

using namespace std::chrono_literals;
using FindingKind = Finding::Kind;

constexpr auto kReachTimeout = 5s;

// Selects the findings on a machine that differ between hosts and matter to a job.
bool matters(const Finding& finding) {
  constexpr std::array<std::string_view, 4> kShown = {"usable CPUs", "GPUs", "open files", "Python's torch"};
  return finding.kind == FindingKind::kProblem || std::find(kShown.begin(), kShown.end(), finding.what) != kShown.end();
}

Finding check_program(const Options& options) {
  try {
    const Program program = resolve_program(options);
    return {FindingKind::kGood, "program", shell_quote(program.file)};
  } catch (const LaunchError& error) {
    return {FindingKind::kProblem, "program", error.what()};
  }
}

Finding check_ranks(const Options& options) {
  try {
    return {FindingKind::kGood, "ranks", std::to_string(local_ranks(options).count)};
  } catch (const LaunchError& error) {
    return {FindingKind::kProblem, "ranks", error.what()};
  }
}

std::string own_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return "";
  return host_in(address);
}

// Returns a name such as "eth0"; "" when no interface has the address.
std::string interface_with(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress own;
    own.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.storage, entry->ifa_addr, own.length);
    if (host_in(own) == address) return entry->ifa_name;
  }
  return "";
}

// Node 0's ddprun listens at the port that was reserved for the job.
Finding check_connection_to_node_0(const Options& options) {
  const auto port = static_cast<std::uint16_t>(options.master_port.value_or(0));
  if (port == 0) return {FindingKind::kNote, "network", "not tried, as there is no connection to node 0"};
  const std::string place = options.master_addr + " port " + std::to_string(port);
  EventLoop loop;
  UniqueFd connection;
  bool is_late = false;
  const auto begin = EventLoop::Clock::now();
  const Connector connector(loop, options.master_addr, port, [&](UniqueFd fd) { connection = std::move(fd); });
  loop.call_at(begin + kReachTimeout, [&is_late] { is_late = true; });
  while (!connection && !is_late) loop.run_once();
  if (!connection)
    return {FindingKind::kProblem, "network", "node 0 at " + place + " cannot be reached: " + connector.problem()};
  const std::string address = own_address(connection.get());
  const std::string interface = interface_with(address);
  return {FindingKind::kGood, "network",
          "node 0 at " + place + " is reached from " + address + (interface.empty() ? "" : " (" + interface + ")")};
}

}  // namespace

std::vector<Finding> check_node(const Options& options) {
  std::vector<Finding> findings;
  for (Finding& finding : check_machine()) {
    if (matters(finding)) findings.push_back(std::move(finding));
  }
  findings.push_back(check_ranks(options));
  if (!options.program.empty()) findings.push_back(check_program(options));
  if (options.nnodes > 1) findings.push_back(check_connection_to_node_0(options));
  return findings;
}

}  // namespace launcher::remote
