// Where this process reaches the job's store. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/base/rank_info.h>

namespace ddp::detail {

struct StoreAddress {
  std::string host{};
  uint16_t port = 0;
};

/// MASTER_ADDR and MASTER_PORT, unless ddprun on this node says that it is a proxy of just that store (DDPRUN_STORE,
/// DDPRUN_STORE_PROXY): then the proxy's, by which all ranks of the node share one connection.
StoreAddress store_address(const RankInfo& info, const EnvironmentLookup& lookup = process_environment());

}  // namespace ddp::detail
