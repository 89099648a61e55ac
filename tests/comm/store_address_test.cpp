#include "comm/core/store_address.h"

#include <map>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

StoreAddress address(const RankInfo& info, std::map<std::string, std::string> variables) {
  return store_address(info, [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST_CASE("store_address: ddprun's proxy stands for the store that it names, and for no other") {
  RankInfo info{.master_addr = "host0", .master_port = 29500, .agent_store = true};
  const std::map<std::string, std::string> proxied = {{"DDPRUN_STORE", "host0:29500"},
                                                      {"DDPRUN_STORE_PROXY", "127.0.0.1:4711"}};
  CHECK(address(info, {}).host == "host0");
  CHECK(address(info, proxied).host == "127.0.0.1");
  CHECK(address(info, proxied).port == 4711);

  SECTION("the program has chosen another port") {
    info.master_port = 29501;
  }
  SECTION("the program has chosen another host") {
    info.master_addr = "host1";
  }
  SECTION("rank 0 is to host the store") {
    info.agent_store = false;
  }
  const StoreAddress direct = address(info, {{"DDPRUN_STORE", "host0:29500"}, {"DDPRUN_STORE_PROXY", "nonsense"}});
  CHECK(direct.host == info.master_addr);
  CHECK(direct.port == info.master_port);
  if (info.master_port == 29500 && info.master_addr == "host0" && info.agent_store) return;
  CHECK(address(info, proxied).host == info.master_addr);
  CHECK(address(info, proxied).port == info.master_port);
}

}  // namespace
}  // namespace ddp::detail
