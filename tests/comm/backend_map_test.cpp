#include "comm/backend_map.h"

#include <gmock/gmock.h>

#include <stdexcept>
#include <vector>

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Case {
  const char* text;
  BackendMap expected;
  const char* canonical;
};

TEST(BackendMap, ReadsTorchDistributedsSyntax) {
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
    EXPECT_EQ(map, c.expected) << c.text;
    EXPECT_EQ(map.text(), c.canonical);
    EXPECT_EQ(parse_backend_map(map.text()), map) << "text() is what the parser reads";
  }
}

TEST(BackendMap, KnowsWhichBackendsItUses) {
  const BackendMap map = parse_backend_map("cpu:gloo,cuda:nccl");
  EXPECT_TRUE(map.uses("gloo"));
  EXPECT_TRUE(map.uses("nccl"));
  EXPECT_FALSE(map.uses("local"));
}

TEST(BackendMap, RefusesWithTheBadPartAndTheChoices) {
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
    EXPECT_THAT(message, AllOf(HasSubstr(std::string("backend '").append(text).append("': ")), HasSubstr(why),
                               HasSubstr("cpu:gloo,cuda:nccl")));
  }
}

}  // namespace
}  // namespace ddp
