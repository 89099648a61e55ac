#include "launcher/nodes/rendezvous/endpoint_rendezvous.h"

#include <algorithm>
#include <chrono>

#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// Pause between attempts to resolve a name. Each attempt starts a process.
constexpr auto kResolveEndpointInterval = 1s;

JoinFailure torchrun_found_failure(const std::string& place) {
  return {"a torchrun node answers at " + place +
              ", with which --rdzv_backend c10d is not possible (its state is a Python pickle): give all nodes "
              "--rdzv_backend static and a --node_rank",
          to_int(ExitStatus::kLauncherError)};
}

}  // namespace

std::string EndpointRendezvous::option_conflict(const Options& options) {
  const std::string nodes = "--nnodes " + std::to_string(options.nnodes);
  if (options.store == Options::Store::kRank0) {
    return "--store rank0 works on one node only: several nodes use a launcher's store";
  }
  if (options.master_addr.empty())
    return nodes +
           " --rdzv_backend c10d: --rdzv_endpoint is missing: choose one node and give its HOST:PORT on every node";
  if (options.master_port == 0)
    return nodes + " --rdzv_backend c10d: --rdzv_endpoint needs a fixed port, the same on all nodes, not 0";
  return "";
}

void EndpointRendezvous::begin_round(int restart_count) {
  watch_.reset();  // it is connected to the store that is closed next
  StaticRendezvous::begin_round(restart_count);
}

void EndpointRendezvous::begin_search() {
  const bool is_short = settings_.join_timeout <= kSilentWait;
  await_name(is_short ? settings_.join_timeout : kSilentWait, is_short);
  StaticRendezvous::begin_search();
}

// Waits for the resolution of the name, which may take long or never end.
void EndpointRendezvous::await_name(EventLoop::Clock::duration time, bool is_last) {
  name_timer_.start_in(time, [this, is_last] {
    if (is_last) {
      refuse({"--rdzv_endpoint: the name " + settings_.master_addr + " could not be resolved" +
                  within_join_timeout(settings_.join_timeout),
              to_int(ExitStatus::kTimeout)});
      return;
    }
    messages_.print("--rdzv_endpoint: the name " + settings_.master_addr + " cannot be resolved yet; trying again");
    await_name(settings_.join_timeout - kSilentWait, true);
  });
}

void EndpointRendezvous::on_resolved(const std::vector<SocketAddress>& addresses) {
  if (!addresses.empty()) name_timer_.cancel();
  if (addresses.empty()) {
    timer_.start_in(kResolveEndpointInterval, [this] { resolve(); });
  } else if (std::any_of(addresses.begin(), addresses.end(), is_own_address)) {
    host_or_search(addresses);
  } else {
    search();
  }
}

// If several launchers of this machine try, the first one gets the port.
void EndpointRendezvous::host_or_search(const std::vector<SocketAddress>& addresses) {
  try {
    host(addresses);
  } catch (const PortInUse&) {
    coordinator_.reset();
    search();
    return;
  }
  watch_.emplace(loop_, store_->host(), store_->port(), [] {});
  watch_->wait(TorchrunKeys::c10d_state(settings_.run_id),
               [this] { refuse(torchrun_found_failure(rendezvous_address())); });
}

void EndpointRendezvous::on_foreign_store() {
  refuse(torchrun_found_failure(rendezvous_address()));
}

}  // namespace launcher
