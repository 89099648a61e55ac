#include "launcher/nodes/rendezvous_kinds.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "launcher/nodes/elastic/elastic_rendezvous.h"
#include "launcher/nodes/rendezvous/endpoint_rendezvous.h"
#include "launcher/nodes/rendezvous/static_rendezvous.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/rank_plan.h"

namespace launcher {
namespace {

class SingleNode : public Rendezvous {
 public:
  static std::string option_conflict(const Options& options) {
    if (options.node_rank == 0) return "";
    return "--node_rank " + std::to_string(options.node_rank) +
           " is too large: with --nnodes 1 there is node 0 only; for several nodes give --nnodes";
  }

  SingleNode(EventLoop& loop, Messages& messages, RendezvousSettings settings)
      : loop_(loop), messages_(messages), settings_(std::move(settings)) {}

  void begin_round(int restart_count) override {
    info_.reset();
    store_.reset();
    int port = settings_.master_port;
    if (settings_.agent_store) {
      store::ServerOptions server = settings_.store;
      server.port = static_cast<std::uint16_t>(port);
      store_.emplace(loop_, messages_, std::move(server));
      port = store_->port();
      // This is only a message, because programs that do not communicate need no store.
      if (const std::string problem = loopback_problem(); !problem.empty() && restart_count == 0)
        messages_.print(problem);
    } else if (port == 0) {
      port = free_port();
    }
    const NodePlace place = {.ranks = assign_ranks({{settings_.role, 0, settings_.local_world_size}}).front()};
    info_ = {.place = place, .master_addr = settings_.master_addr, .master_port = port};
  }
  const std::optional<RendezvousInfo>& info() const override { return info_; }
  std::optional<JoinFailure> join_failure() const override { return std::nullopt; }
  store::StoreServer* store() override { return store_ ? &*store_ : nullptr; }
  void ranks_started() override {}
  bool can_restart() const override { return true; }
  void announce(FailureNotice /*notice*/) override {}
  const std::optional<FailureNotice>& first_failure() const override { return first_failure_; }
  void leave(bool /*ended_well*/) override {}
  bool has_left() const override { return true; }

 private:
  EventLoop& loop_;
  Messages& messages_;
  RendezvousSettings settings_;
  std::optional<store::StoreServer> store_;
  std::optional<RendezvousInfo> info_;
  std::optional<FailureNotice> first_failure_;  // always empty, as there is no other node
};

template <typename Kind>
std::unique_ptr<Rendezvous> make(EventLoop& loop, Messages& messages, RendezvousSettings settings) {
  return std::make_unique<Kind>(loop, messages, std::move(settings));
}

constexpr RendezvousKind kSingleNode = {"", &SingleNode::option_conflict, &make<SingleNode>};

// For a number of nodes that may change.
constexpr RendezvousKind kElastic = {"c10d", &elastic::ElasticRendezvous::option_conflict,
                                     &make<elastic::ElasticRendezvous>};

// For several nodes. The first one is the default.
constexpr std::array kKinds = {
    RendezvousKind{"static", &StaticRendezvous::option_conflict, &make<StaticRendezvous>},
    RendezvousKind{"c10d", &EndpointRendezvous::option_conflict, &make<EndpointRendezvous>},
    RendezvousKind{"etcd", &elastic::EtcdRendezvous::option_conflict, &make<elastic::EtcdRendezvous>},
    // torchrun has etcd-v2 for etcd's API v2. Here both names use API v3.
    RendezvousKind{"etcd-v2", &elastic::EtcdRendezvous::option_conflict, &make<elastic::EtcdRendezvous>},
};

using namespace std::chrono_literals;

// How long to wait for the other nodes, which were started at about the same time.
constexpr auto kNotifyTimeout = 5s;

// Prints nothing, because the message was already printed.
class Silent : public Messages {
 public:
  void print(std::string_view /*line*/) override {}
  void print_lines(std::string_view /*lines*/) override {}
};

}  // namespace

int notify_other_nodes(const Options& options, const JoinFailure& start_failure) {
  if (options.nnodes == 1) return start_failure.exit_status;
  try {
    RendezvousSettings settings = rendezvous_settings(options, plan_environment(options, 0, "", 1));
    settings.start_failure = start_failure;
    settings.is_any_ending = [] { return false; };
    settings.on_failure = [](const FailureNotice&) {};
    EventLoop loop;
    Silent messages;
    bool is_over = false;
    loop.call_at(EventLoop::Clock::now() + kNotifyTimeout, [&is_over] { is_over = true; });
    const auto rendezvous = find_rendezvous(options)->make(loop, messages, std::move(settings));
    rendezvous->begin_round(0);
    while (!is_over && !(rendezvous->join_failure() && rendezvous->has_left())) loop.run_once();
    // Another node may have had a problem of its own first.
    if (const auto failure = rendezvous->join_failure(); failure && failure->exit_status != 0)
      return failure->exit_status;
  } catch (const LaunchError&) {  // the other nodes cannot be informed; their own timeouts end them
  }
  return start_failure.exit_status;
}

const RendezvousKind* find_rendezvous(const Options& options) {
  if (options.nnodes == 1) return &kSingleNode;
  const std::string& backend = options.rdzv_backend;
  if (options.elastic.is_on() && (backend.empty() || backend == "c10d" || backend == "static")) return &kElastic;
  if (options.rdzv_backend.empty()) return &kKinds.front();
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const RendezvousKind& kind) { return kind.name == options.rdzv_backend; });
  return found == kKinds.end() ? nullptr : &*found;
}

std::string rendezvous_names() {
  std::string names;
  for (const RendezvousKind& kind : kKinds) {
    const bool is_last = &kind == &kKinds.back();
    names.append(names.empty() ? "'" : is_last ? " or '" : ", '").append(kind.name).append("'");
  }
  return names;
}

}  // namespace launcher
