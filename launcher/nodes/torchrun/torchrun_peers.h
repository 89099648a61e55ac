// torchrun's nodes in a job whose store this launcher hosts: they say what they bring by keys of the store, and are
// told their ranks by others. They learn of no failure.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "launcher/nodes/store/store_client.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher {

class TorchrunPeers {
 public:
  struct Callbacks {
    std::function<void(const RoleInfo&)> on_arrived{};
    // What one wrote cannot be used.
    std::function<void(const std::string& text)> on_nonsense{};
    // Every node of the job has ended well.
    std::function<void()> on_all_ended{};
    // One more has arrived under a number that was assigned.
    std::function<void(int node)> on_twice{};
  };
  // Both must outlive the object.
  TorchrunPeers(EventLoop& loop, store::StoreServer& store, const std::string& run_id, Callbacks callbacks);

  // Waits for this node until it has arrived as one of torchrun's, or another one is expected.
  void expect(int node);
  // Whether a torchrun node has arrived under this number.
  bool has_arrived(int node) const { return !store_.look_up(keys_.role_info(node)).empty(); }
  void assign(int node, const NodeRanks& ranks);
  // One of ddprun's nodes, of `nnodes` in all, has ended well.
  void node_ended(int nnodes);
  void watch_end();

 private:
  void on_arrival(int node);
  void check_for_second();
  void soon(std::function<void()> action);

  store::StoreServer& store_;
  TorchrunKeys keys_;
  Callbacks callbacks_;
  EventLoop& loop_;
  int expected_ = -1;
  std::set<int> assigned_;
  EventLoop::Timer look_{loop_};
  EventLoop::Timer soon_{loop_};
  std::unique_ptr<store::StoreClient> watch_;  // for the expected one
  store::StoreClient client_;
};

}  // namespace launcher
