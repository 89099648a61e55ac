// How a launcher of several nodes comes to host the store: where it listens, and whether another one does already.
#include <chrono>
#include <utility>

#include "launcher/nodes/rendezvous/listen_choice.h"
#include "launcher/nodes/rendezvous/static_rendezvous.h"
#include "launcher/nodes/store/limits.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/exit_status.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// What has the port, if it is a ddprun.
constexpr auto kRivalAnswers = 1s;

}  // namespace

void StaticRendezvous::resolve() {
  const auto port = static_cast<std::uint16_t>(settings_.master_port);
  if (const auto addresses = numeric_addresses(settings_.master_addr, port); !addresses.empty()) {
    on_resolved(addresses);
    return;
  }
  lookup_ = std::make_unique<AddressLookup>(loop_, settings_.master_addr, port,
                                            [this](const std::vector<SocketAddress>& found) { on_resolved(found); });
}

// Where the address is another machine's, one that listens there is node 0 as well: unless the address leads back here.
void StaticRendezvous::on_resolved(const std::vector<SocketAddress>& addresses) {
  try {
    host(addresses);
  } catch (const PortInUse& error) {
    coordinator_.reset();
    on_taken_port(error.what());
    return;
  }
  const bool is_elsewhere = settings_.has_master_addr && where_.kind == ListenAt::Kind::kEverywhere;
  if (is_elsewhere && !addresses.empty() && !is_loopback(addresses.front())) look_for_rival();
}

void StaticRendezvous::look_for_rival() {
  rival_ = std::make_unique<Rival>(
      loop_, messages_,
      Rival::Settings{settings_.master_addr, static_cast<std::uint16_t>(master_port_), hello(), settings_.secret},
      [this](const JoinFailure& reason) {
        refuse(reason);
        search_timer_ = loop_.call_at(EventLoop::Clock::now(), [this] { end_search(); });
      });
}

// A ddprun that has it takes itself for node 0 of this job, and both are to say so.
void StaticRendezvous::on_taken_port(const std::string& problem) {
  look_for_rival();
  search_timer_ = loop_.call_at(EventLoop::Clock::now() + kRivalAnswers, [this, problem] {
    const std::string stranger = rival_ ? rival_->stranger() : "";
    refuse({stranger.empty() ? problem : stranger, to_int(ExitStatus::kLauncherError)});
    end_search();
  });
}

// Later than its callbacks.
void StaticRendezvous::end_search() {
  search_timer_.reset();
  rival_.reset();
}

// Each round has a store of its own, on the same port.
void StaticRendezvous::open_store() {
  store_.reset();
  store::ServerOptions server = settings_.store;
  server.port = static_cast<std::uint16_t>(master_port_);
  server.where = where_;
  store_.emplace(loop_, messages_, std::move(server));
  master_port_ = store_->port();
  store_->set(kControlPortKey, std::to_string(coordinator_->port()));
}

void StaticRendezvous::say_who_can_join() {
  const std::string note = settings_.secret ? "" : open_to_others(meeting(), where_);
  if (!note.empty()) messages_.say(note);
}

void StaticRendezvous::host(const std::vector<SocketAddress>& addresses) {
  ListenChoice choice = choose_listening(settings_.master_addr, addresses);
  if (!settings_.has_master_addr) choice = {{ListenAt::Kind::kEverywhere}, ""};
  if (!choice.note.empty()) messages_.say(choice.note);
  where_ = choice.where;
  say_who_can_join();
  CoordinatorOptions options{.host = hello()};
  options.meeting = meeting();
  options.where = where_;
  options.secret = settings_.secret;
  options.order = order();
  options.join_timeout = settings_.join_timeout;
  options.node_timeout = settings_.node_timeout;
  options.patience = [this] { return patience(); };
  options.side_channel = settings_.side_channel;
  coordinator_ = std::make_unique<Coordinator>(loop_, messages_, std::move(options));
  open_store();
  coordinator_->begin_round(round_, *store_);
  meet(coordinator_->connect_locally());
  // A connection of each node and one more while it asks the store where to connect, and what the rest of a launcher
  // needs.
  const int needed = 2 * settings_.nnodes + 64;
  if (const int limit = store::descriptor_limit(); limit < needed) {
    refuse({"--nnodes " + std::to_string(settings_.nnodes) + " needs " + std::to_string(needed) +
                " open files on the node with the store, whose limit is " + std::to_string(limit) + " (ulimit -Hn)",
            to_int(ExitStatus::kLauncherError)});
  }
}

}  // namespace launcher
