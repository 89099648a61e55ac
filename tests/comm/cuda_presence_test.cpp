#include "comm/cuda_presence.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

namespace ddp::detail {
namespace {

using testing::HasSubstr;

std::string why(const std::map<std::string, std::string>& variables, const std::set<std::string>& nodes) {
  return why_no_cuda(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      [&](const char* path) { return nodes.contains(path); });
}

TEST(CudaPresence, TakesADeviceNodeForADevice) {
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu"}) {
    EXPECT_EQ(why({}, {node}), "") << node;
    EXPECT_EQ(why({{"CUDA_VISIBLE_DEVICES", "1,0"}}, {node}), "");
    EXPECT_EQ(why({{"DDPRUN_CUDA", "1"}}, {node}), "");
  }
}

TEST(CudaPresence, SaysThatThereIsNoDeviceNode) {
  EXPECT_EQ(why({}, {}), "no NVIDIA device node under /dev");
  EXPECT_EQ(why({{"DDPRUN_CUDA", "1"}}, {}), "") << "then none is looked for";
  EXPECT_NE(why({{"CUDA_VISIBLE_DEVICES", "0"}}, {"/dev/null"}), "");
}

TEST(CudaPresence, FollowsVariablesThatHideEveryDevice) {
  for (const char* hidden : {"", "-1", "-1,0", "NoDevFiles"}) {
    EXPECT_THAT(why({{"CUDA_VISIBLE_DEVICES", hidden}}, {"/dev/nvidia0"}),
                HasSubstr("CUDA_VISIBLE_DEVICES='" + std::string(hidden) + "' hides every GPU"));
  }
  EXPECT_EQ(why({{"DDPRUN_CUDA", "0"}}, {"/dev/nvidia0"}), "DDPRUN_CUDA=0");
}

}  // namespace
}  // namespace ddp::detail
