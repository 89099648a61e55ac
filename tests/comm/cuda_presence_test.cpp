#include "comm/core/cuda_presence.h"

#include <map>
#include <set>
#include <string>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string why(const std::map<std::string, std::string>& variables, const std::set<std::string>& nodes) {
  return why_no_cuda(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      [&](const char* path) { return nodes.contains(path); });
}

TEST_CASE("CudaPresence: takes a device node for a device") {
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu"}) {
    UNSCOPED_INFO(node);
    CHECK(why({}, {node}) == "");
    CHECK(why({{"CUDA_VISIBLE_DEVICES", "1,0"}}, {node}) == "");
    CHECK(why({{"DDPRUN_CUDA", "1"}}, {node}) == "");
  }
}

TEST_CASE("CudaPresence: says that there is no device node") {
  CHECK(why({}, {}) == "no NVIDIA device node under /dev");
  UNSCOPED_INFO("then none is looked for");
  CHECK(why({{"DDPRUN_CUDA", "1"}}, {}) == "");
  CHECK(why({{"CUDA_VISIBLE_DEVICES", "0"}}, {"/dev/null"}) != "");
}

TEST_CASE("CudaPresence: follows variables that hide every device") {
  for (const char* hidden : {"", "-1", "-1,0", "NoDevFiles"}) {
    CHECK_THAT(why({{"CUDA_VISIBLE_DEVICES", hidden}}, {"/dev/nvidia0"}),
               ContainsSubstring("CUDA_VISIBLE_DEVICES='" + std::string(hidden) + "' hides every GPU"));
  }
  CHECK(why({{"DDPRUN_CUDA", "0"}}, {"/dev/nvidia0"}) == "DDPRUN_CUDA=0");
}

}  // namespace
}  // namespace ddp::detail
