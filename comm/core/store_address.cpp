#include "comm/core/store_address.h"

#include <charconv>

namespace ddp::detail {

StoreAddress store_address(const RankInfo& info, const EnvironmentLookup& lookup) {
  const StoreAddress direct{info.master_addr, info.master_port};
  const auto store = lookup("DDPRUN_STORE");
  const auto proxy = lookup("DDPRUN_STORE_PROXY");
  // The program may use another store than the launcher's.
  if (!info.agent_store || !store || !proxy || *store != direct.host + ":" + std::to_string(direct.port)) return direct;
  const size_t colon = proxy->rfind(':');
  if (colon == std::string::npos) return direct;
  uint16_t port = 0;
  const char* end = proxy->data() + proxy->size();
  const auto [stop, error] = std::from_chars(proxy->data() + colon + 1, end, port);
  if (error != std::errc{} || stop != end || port == 0) return direct;
  return {proxy->substr(0, colon), port};
}

}  // namespace ddp::detail
