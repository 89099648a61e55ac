#include "comm/core/backend_map.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Case {
  const char* text;
  BackendMap expected;
  const char* canonical;
};

TEST_CASE("BackendMap: reads torch distributeds syntax") {
  const std::vector<Case> cases = {
      {"gloo", {.cpu = "gloo", .cuda = "gloo"}, "gloo"},
      {"local", {.cpu = "local", .cuda = "local"}, "local"},
      {"nccl", {.cpu = "", .cuda = "nccl"}, "nccl"},
      {"cpu:gloo,cuda:nccl", {.cpu = "gloo", .cuda = "nccl"}, "cpu:gloo,cuda:nccl"},
      {"cuda:nccl,cpu:gloo", {.cpu = "gloo", .cuda = "nccl"}, "cpu:gloo,cuda:nccl"},
      {"cpu:gloo,cuda:gloo", {.cpu = "gloo", .cuda = "gloo"}, "gloo"},
      {"cpu:gloo", {.cpu = "gloo", .cuda = ""}, "cpu:gloo"},
      {"cuda:gloo", {.cpu = "", .cuda = "gloo"}, "cuda:gloo"},
      {"cuda:nccl", {.cpu = "", .cuda = "nccl"}, "nccl"},
  };
  for (const Case& c : cases) {
    const BackendMap map = parse_backend_map(c.text);
    UNSCOPED_INFO(c.text);
    CHECK(map == c.expected);
    CHECK(map.text() == c.canonical);
    INFO("text() is what the parser reads");
    CHECK(parse_backend_map(map.text()) == map);
  }
}

TEST_CASE("BackendMap: knows which backends it uses") {
  const BackendMap map = parse_backend_map("cpu:gloo,cuda:nccl");
  CHECK(map.uses("gloo"));
  CHECK(map.uses("nccl"));
  CHECK_FALSE(map.uses("local"));
}

TEST_CASE("BackendMap: refuses with the bad part and the choices") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "nothing is named"},
      {"mpi", "no ProcessGroupMPI inside"},
      {"NCCL", "'NCCL' is no known backend"},
      {"gloo,nccl", "'gloo' is no known backend"},
      {"cpu:mpi", "no ProcessGroupMPI inside"},
      {"tpu:gloo", "device 'tpu' is neither cpu nor cuda"},
      {"cpu:nccl", "nccl serves CUDA tensors only"},
      {"cpu:gloo,cpu:gloo", "device 'cpu' is named twice"},
      {"cpu:gloo,,cuda:nccl", "'' is no known backend"},
      {"cpu:", "'' is no known backend"},
      {"cpu:gloo cuda:nccl", "'gloo cuda:nccl' is no known backend"},
  };
  for (const auto& [text, why] : cases) {
    std::string message = "no error";
    try {
      parse_backend_map(text);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    CHECK_THAT(message, ContainsSubstring(std::string("backend '").append(text).append("': ")) &&
                            ContainsSubstring(why) && ContainsSubstring("cpu:gloo,cuda:nccl"));
  }
}

}  // namespace
}  // namespace ddp
