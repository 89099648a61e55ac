#include "comm/group/gpu_claims.h"

#include <stdexcept>
#include <thread>

#include "comm/core/store_connection.h"
#include "comm/group/failure_cause.h"
#include "comm/group/store.h"
#include "comm/group/store_keys.h"

namespace ddp::detail {
namespace {

bool all_have_claimed(c10d::Store& store, std::chrono::milliseconds patience) {
  try {
    store.wait({keys::all_gpus_claimed()}, patience);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

// The reason why this rank is refused; empty if it is not refused.
std::string refusal(c10d::Store& store, const RankInfo& info, const GpuClaim& claim) {
  const std::string me = std::to_string(info.rank);
  const std::string holder = set_once(store, keys::gpu(claim.uuid), me);
  if (holder != me) {
    set_once(store, keys::gpu_refusal(),
             "ranks " + holder + " and " + me + " use the same GPU (" + claim.uuid + "), and " + claim.backend +
                 " needs one GPU per rank. Start fewer ranks on this node, make more GPUs visible, or use backend "
                 "'gloo' to share GPUs.");
  }
  if (store.add(keys::gpu_claims(), 1) == info.world_size) store.set(keys::all_gpus_claimed(), std::string("1"));
  const bool is_complete = all_have_claimed(store, claim.patience);
  if (!store.check({keys::gpu_refusal()})) return {};
  std::string text = store.get_to_str(keys::gpu_refusal());
  // The other ranks have been woken, and are still reading the answer from this rank's store.
  if (claim.hosts_store && is_complete) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  return text;
}

}  // namespace

void claim_gpu(c10d::Store& store, const RankInfo& info, const GpuClaim& claim) {
  std::string text;
  try {
    text = refusal(store, info, claim);
  } catch (const StoreUnreachable& error) {
    throw std::runtime_error(who(info) + ": could not agree with the other ranks on which rank uses which GPU" +
                             about_store(info, error.what()));
  }
  if (!text.empty()) throw std::runtime_error(who(info) + ": " + text);
}

}  // namespace ddp::detail
