#include "launcher/nodes/elastic/endpoint_discovery.h"

#include <algorithm>
#include <utility>

#include "launcher/nodes/rendezvous/listen_choice.h"
#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

// Pause between attempts to resolve a name. Each attempt starts a process.
constexpr auto kResolveInterval = 1s;
// How long a node that was given up, or that has lost the coordinator, searches for it.
constexpr std::chrono::milliseconds kRejoinTimeout = 10s;

}  // namespace

EndpointDiscovery::EndpointDiscovery(EventLoop& loop, Messages& messages, const RendezvousSettings& settings,
                                     Callbacks callbacks)
    : loop_(loop), messages_(messages), settings_(settings), callbacks_(std::move(callbacks)) {}

std::chrono::milliseconds EndpointDiscovery::search_timeout() const {
  return kRejoinTimeout;
}

std::string EndpointDiscovery::name() const {
  return settings_.master_addr + " port " + std::to_string(settings_.master_port);
}

// Starts later from the event loop, as a callback may destroy the object that calls. A node that was given up must not
// begin a new job.
void EndpointDiscovery::search(bool anew, bool /*has_taken_part*/) {
  if (anew) {
    find();
  } else {
    resolve();
  }
}

void EndpointDiscovery::resolve() {
  launcher::resolve(loop_, lookup_, settings_.master_addr, static_cast<std::uint16_t>(settings_.master_port),
                    [this](const std::vector<SocketAddress>& found) { on_resolved(found); });
}

void EndpointDiscovery::on_resolved(const std::vector<SocketAddress>& addresses) {
  problem_ = addresses.empty() ? "the name " + settings_.master_addr + " cannot be resolved" : "";
  if (addresses.empty()) {
    timer_.start_in(kResolveInterval, [this] { resolve(); });
  } else if (std::none_of(addresses.begin(), addresses.end(), is_own_address) || !try_to_host(addresses)) {
    find();
  }
}

// If several launchers of this machine try, the first one gets the port.
bool EndpointDiscovery::try_to_host(const std::vector<SocketAddress>& addresses) {
  const ListenChoice choice = choose_listening(settings_.master_addr, addresses);
  store::ServerOptions server;
  server.port = static_cast<std::uint16_t>(settings_.master_port);
  server.where = choice.where;
  try {
    store_.emplace(loop_, messages_, std::move(server));
  } catch (const PortInUse&) {
    return false;
  }
  if (!choice.note.empty()) messages_.print(choice.note);
  callbacks_.on_host(choice.where, {});
  return true;
}

void EndpointDiscovery::announce(std::uint16_t control_port) {
  store_->set(kControlPortKey, std::to_string(control_port));
}

void EndpointDiscovery::find() {
  search_ = std::make_unique<CoordinatorSearch>(
      loop_, settings_.master_addr, static_cast<std::uint16_t>(settings_.master_port), settings_.nnodes,
      CoordinatorSearch::Callbacks{
          .on_found =
              [this](UniqueFd fd) {
                callbacks_.on_found(std::move(fd));
                timer_.start_in(0ms, [this] { search_.reset(); });
              },
          .on_foreign =
              [this] {
                callbacks_.on_impossible(
                    {"a torchrun node answers at " + name() +
                         ", with which --nnodes MIN:MAX is not possible (its state is a Python pickle): use ddprun on "
                         "all nodes",
                     to_int(ExitStatus::kLauncherError)});
              },
          .on_other_service =
              [this](const std::string& text) {
                callbacks_.on_impossible({text, to_int(ExitStatus::kLauncherError)});
              }});
}

}  // namespace launcher::elastic
