// The keys that torchrun's launchers write into the store, below the name of the job. Pure.
#pragma once

#include <string>

namespace launcher {

class TorchrunKeys {
 public:
  explicit TorchrunKeys(const std::string& run_id) : prefix_("/" + run_id + "/") {}

  std::string role_info(int node) const { return prefix_ + "torchelastic/role_info/" + std::to_string(node); }
  std::string assigned_ranks(int node) const { return prefix_ + "torchelastic/assigned_ranks/" + std::to_string(node); }
  // The exit barrier: nodes that have ended, and a sign that all have.
  std::string ended() const { return prefix_ + "torchelastic/agent/terminal_state/num_members"; }
  std::string all_ended() const { return prefix_ + "torchelastic/agent/terminal_state/last_member"; }
  // Of ddprun nodes that meet at the store of a torchrun node.
  std::string failure() const { return prefix_ + "ddprun/first_failure"; }

  // Node 0 of torchrun counts who has arrived, whatever the job's name.
  static constexpr const char* kArrived = "init/";
  // The state of --rdzv_backend=c10d, a pickle.
  static std::string c10d_state(const std::string& run_id) { return "/torch.rendezvous." + run_id; }

 private:
  std::string prefix_;
};

// Where the launcher that hosts the store listens for the other launchers: clients of torch cannot write it, as their
// keys begin with a slash.
inline constexpr const char* kControlPortKey = "ddprun/control";

}  // namespace launcher
