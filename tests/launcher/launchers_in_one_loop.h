// The launchers of one job in one event loop, for tests of how they meet.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/rendezvous_kinds.h"
#include "launcher/os/network/tcp_socket.h"
#include "tests/support/catch.h"

namespace launcher {

using namespace std::chrono_literals;

class Silence : public Messages {
  void print(std::string_view /*line*/) override {}
  void print_lines(std::string_view /*lines*/) override {}
};

inline Options options(int nnodes, int node_rank = 0, const std::string& backend = "") {
  Options chosen;
  chosen.nnodes = nnodes;
  chosen.node_rank = node_rank;
  chosen.rdzv_backend = backend;
  chosen.master_addr = "127.0.0.1";
  return chosen;
}

// What each was told of failures elsewhere is in heard[node]; whether a rank of it is about to fail in is_ending[node].
class LaunchersInOneLoop {
 protected:
  explicit LaunchersInOneLoop(int count = 3, std::string by = "") : nnodes(count), backend(std::move(by)) {
    for (int node = 0; node < nnodes; ++node) nodes.push_back(launcher(node, node + 1));
  }

  RendezvousSettings settings_of(int node, int ranks) {
    const auto index = static_cast<std::size_t>(node);
    RendezvousSettings settings{.nnodes = nnodes,
                                .node_rank = node,
                                .local_world_size = ranks,
                                .master_addr = "127.0.0.1",
                                .master_port = port};
    settings.is_any_ending = [this, index] { return is_ending[index]; };
    settings.on_failure = [this, index](const FailureNotice& notice) { heard[index].push_back(notice.text); };
    return settings;
  }
  std::unique_ptr<Rendezvous> launcher(RendezvousSettings settings) {
    return find_rendezvous(options(nnodes, 0, backend))->make(loop, messages, std::move(settings));
  }
  std::unique_ptr<Rendezvous> launcher(int node, int ranks) { return launcher(settings_of(node, ranks)); }

  template <typename Condition>
  void run_until(const Condition& condition) {
    bool is_late = false;
    const auto timer = loop.call_at(EventLoop::Clock::now() + 120s, [&] { is_late = true; });
    while (!condition() && !is_late) loop.run_once();
    loop.cancel(timer);
    REQUIRE_FALSE(is_late);
  }
  void run_for(std::chrono::milliseconds time) {
    bool is_over = false;
    loop.call_at(EventLoop::Clock::now() + time, [&] { is_over = true; });
    while (!is_over) loop.run_once();
  }
  bool all(bool (*condition)(const Rendezvous&)) const {
    for (const auto& node : nodes) {
      if (node && !condition(*node)) return false;
    }
    return true;
  }
  void run_until_all(bool (*condition)(const Rendezvous&)) {
    run_until([&] { return all(condition); });
  }
  static bool has_met(const Rendezvous& node) { return node.info().has_value(); }
  static bool cannot_meet(const Rendezvous& node) { return node.join_failure().has_value(); }
  static bool knows_failure(const Rendezvous& node) { return node.first_failure().has_value(); }
  static bool has_left(const Rendezvous& node) { return node.has_left(); }
  void begin(int round) {
    for (const auto& node : nodes) node->begin_round(round);
  }
  void meet(int round = 0) {
    begin(round);
    run_until_all(has_met);
    for (const auto& node : nodes) node->ranks_started();
  }

  int nnodes;
  std::string backend;
  int port = free_port();
  EventLoop loop;
  Silence messages;
  std::vector<std::vector<std::string>> heard = std::vector<std::vector<std::string>>(static_cast<std::size_t>(nnodes));
  std::vector<bool> is_ending = std::vector<bool>(static_cast<std::size_t>(nnodes));
  std::vector<std::unique_ptr<Rendezvous>> nodes;
};

}  // namespace launcher
