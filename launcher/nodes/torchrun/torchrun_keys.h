// The keys that torchrun's launchers write into the store, under the name of the job. Pure.
#pragma once

#include <string>

namespace launcher {

class TorchrunKeys {
 public:
  explicit TorchrunKeys(const std::string& run_id) : prefix_("/" + run_id + "/") {}

  std::string role_info(int node) const { return prefix_ + "torchelastic/role_info/" + std::to_string(node); }
  std::string assigned_ranks(int node) const { return prefix_ + "torchelastic/assigned_ranks/" + std::to_string(node); }
  // The exit barrier: the number of nodes that have ended, and a key that exists when all have.
  std::string ended() const { return prefix_ + "torchelastic/agent/terminal_state/num_members"; }
  std::string all_ended() const { return prefix_ + "torchelastic/agent/terminal_state/last_member"; }
  // For ddprun nodes that use the store of a torchrun node.
  std::string failure() const { return prefix_ + "ddprun/first_failure"; }

  // torchrun's node 0 counts the arrived nodes in this key, which does not contain the job's name.
  static constexpr const char* kArrived = "init/";
  // The state of --rdzv_backend=c10d, a pickle.
  static std::string c10d_state(const std::string& run_id) { return "/torch.rendezvous." + run_id; }

 private:
  std::string prefix_;
};

// The port on which the launcher that hosts the store accepts the other launchers. Clients of torch cannot write this
// key, as theirs begin with a slash.
inline constexpr const char* kControlPortKey = "ddprun/control";

}  // namespace launcher
