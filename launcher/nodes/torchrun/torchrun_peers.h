// torchrun's nodes in a job whose store this launcher hosts. They write their number of ranks into keys of the store,
// and read their ranks from other keys. They are not informed of failures.
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
    // A node has written something that cannot be used.
    std::function<void(const std::string& text)> on_nonsense{};
    // Every node of the job has ended well.
    std::function<void()> on_all_ended{};
    // A second node has arrived under a number that was already assigned.
    std::function<void(int node)> on_twice{};
  };
  // Both must outlive the object.
  TorchrunPeers(EventLoop& loop, store::StoreServer& store, const std::string& run_id, Callbacks callbacks);

  // Waits until this node has arrived as a torchrun node, or until another one is expected.
  void expect(int node);
  // Whether a torchrun node has arrived under this number.
  bool has_arrived(int node) const { return !store_.look_up(keys_.role_info(node)).empty(); }
  void assign(int node, const NodeRanks& ranks);
  // A ddprun node has ended well; `nnodes` is the number of all nodes.
  void node_ended(int nnodes);
  void watch_end();

 private:
  void on_arrival(int node);
  void check_for_duplicate();
  void call_later(std::function<void()> action);

  store::StoreServer& store_;
  TorchrunKeys keys_;
  Callbacks callbacks_;
  EventLoop& loop_;
  int expected_ = -1;
  std::set<int> assigned_;
  EventLoop::Timer poll_timer_{loop_};
  EventLoop::Timer call_later_timer_{loop_};
  std::unique_ptr<store::StoreClient> watch_;  // waits for the expected node
  store::StoreClient client_;
};

}  // namespace launcher
