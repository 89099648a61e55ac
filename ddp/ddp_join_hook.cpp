#include "ddp/ddp_join_hook.h"

#include <ddprun/comm/collectives.h>

#include "comm/reducer/option_rules.h"
#include "comm/reducer/reducer.h"

namespace ddp {

void DdpJoinHook::main_hook() {
  if (!core_.reducer_) return;
  core_.reducer_->shadow_forward();
  if (core_.buffers_stale_ && detail::syncs_buffers_in_forward(core_.options_)) {
    std::vector<at::Tensor> buffers;
    for (const NamedTensor& buffer : core_.parameters_->buffers()) buffers.push_back(buffer.tensor);
    if (!buffers.empty()) broadcast_coalesced(buffers, core_.common_rank(false), core_.group_);
  }
  core_.buffers_stale_ = core_.any_rank_reduces(false);
  if (core_.buffers_stale_) core_.reducer_->shadow_backward(keep_gradients_);
}

void DdpJoinHook::post_hook(bool is_last_joiner) {
  if (!core_.reducer_) return;
  core_.broadcast_state(core_.common_rank(is_last_joiner), detail::syncs_buffers_in_forward(core_.options_));
}

}  // namespace ddp
