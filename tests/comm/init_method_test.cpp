#include "comm/core/init_method.h"

#include <map>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Kind = InitMethod::Kind;
using Variables = std::map<std::string, std::string>;

RankInfo place(const std::string& url, Variables variables = {}, const std::optional<RankInfo>& given = {}) {
  return place_for(parse_init_method(url), given, [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST_CASE("parse_init_method: torch.distributed's URLs mean what they mean there") {
  CHECK(parse_init_method("").kind == Kind::kEnvironment);
  CHECK(parse_init_method("env://").kind == Kind::kEnvironment);
  CHECK(parse_init_method("env://?rank=1").rank == 1);
  const InitMethod tcp = parse_init_method("tcp://host0:29500?rank=3&world_size=8&use_libuv=0");
  CHECK(tcp.kind == Kind::kTcp);
  CHECK(tcp.host == "host0");
  CHECK(tcp.port == 29500);
  CHECK(tcp.rank == 3);
  CHECK(tcp.world_size == 8);
  CHECK(parse_init_method("tcp://[fe80::1]:7").host == "fe80::1");
  CHECK(parse_init_method("tcp://10.0.0.1:7/").port == 7);
  const InitMethod file = parse_init_method("file:///shared/a b.store?world_size=2&rank=0");
  CHECK(file.kind == Kind::kFile);
  CHECK(file.path == "/shared/a b.store");
  CHECK(file.world_size == 2);
  CHECK(parse_init_method("file://localhost/x").path == "/x");
}

TEST_CASE("parse_init_method: what cannot be meant is refused with what is expected") {
  const std::map<std::string, std::string> wrong = {{"host0:29500", "expected env://, tcp://host:port or file:///path"},
                                                    {"http://host0:1", "unsupported scheme http://"},
                                                    {"tcp://host0", "the port is missing"},
                                                    {"tcp://[::1]", "the port is missing"},
                                                    {"tcp://::1:29500", "needs brackets"},
                                                    {"tcp://:29500", "the host is missing"},
                                                    {"tcp://host0:0", "the port is '0'"},
                                                    {"tcp://host0:65536", "the port is '65536'"},
                                                    {"tcp://host0:1?rank=x&world_size=2", "rank is 'x'"},
                                                    {"tcp://host0:1?rank=-1&world_size=2", "rank is '-1'"},
                                                    {"tcp://host0:1?rank=1", "rank without world_size"},
                                                    {"file:///x?world_size=2", "world_size without rank"},
                                                    {"file://relative", "file:///path"},
                                                    {"file://other-host/x", "file:///path"},
                                                    {"file:///", "file:///path"},
                                                    {"env://host0:1", "expected env:// without an address"}};
  for (const auto& [url, text] : wrong) {
    CAPTURE(url);
    CHECK_THROWS_WITH(parse_init_method(url), ContainsSubstring(text) && ContainsSubstring("'" + url + "'"));
  }
}

TEST_CASE("place_for: the query counts, then the program's place, then the environment's") {
  const Variables torchrun = {{"RANK", "1"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "theirs"},
                              {"MASTER_PORT", "5"}};
  const RankInfo by_query = place("tcp://host0:7?rank=3&world_size=8");
  CHECK(by_query.rank == 3);
  CHECK(by_query.world_size == 8);
  CHECK(by_query.local_rank == 0);
  CHECK(by_query.master_addr == "host0");
  CHECK(by_query.master_port == 7);
  const RankInfo over_environment = place("tcp://host0:7?rank=3&world_size=8", torchrun);
  CHECK(over_environment.rank == 3);
  CHECK(over_environment.local_rank == 1);
  CHECK(place("tcp://host0:7", torchrun).rank == 1);
  CHECK(place("tcp://host0:7", {{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_LOCALID", "2"}}).rank ==
        2);
  CHECK(place("env://?rank=2&world_size=3", torchrun).rank == 2);
  CHECK(place("env://", torchrun).master_addr == "theirs");
  const RankInfo file = place("file:///x", torchrun);
  CHECK(file.rank == 1);
  CHECK(file.master_port == 0);
  CHECK(place("tcp://host0:7", torchrun, RankInfo{.rank = 5, .world_size = 6}).rank == 5);
  CHECK(place("tcp://host0:7", torchrun, RankInfo{.rank = 5, .world_size = 6}).master_addr == "host0");
}

TEST_CASE("place_for: a place that is given twice or not at all is refused") {
  CHECK_THROWS_WITH(place("tcp://host0:7?rank=0&world_size=2", {}, RankInfo{}), ContainsSubstring("given twice"));
  CHECK_THROWS_WITH(place("tcp://host0:7"), ContainsSubstring("?rank=R&world_size=N"));
  CHECK_THROWS_WITH(place("file:///x"), ContainsSubstring("?rank=R&world_size=N"));
  CHECK(place("env://").world_size == 1);
}

TEST_CASE("place_for: the launcher hosts the store at its own address only") {
  const Variables agent = {{"RANK", "0"},        {"WORLD_SIZE", "2"},  {"LOCAL_RANK", "0"},
                           {"MASTER_ADDR", "h"}, {"MASTER_PORT", "7"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(place("tcp://h:7", agent).agent_store);
  CHECK_FALSE(place("tcp://h:8", agent).agent_store);
  CHECK_FALSE(place("tcp://g:7", agent).agent_store);
  CHECK_FALSE(place("file:///x", agent).agent_store);
  CHECK(place("env://", agent).agent_store);
}

}  // namespace
}  // namespace ddp::detail
