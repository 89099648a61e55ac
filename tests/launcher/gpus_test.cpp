#include "launcher/machine/gpus.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

const std::vector<std::string> kFour = {"GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333", "GPU-dddd4444"};

TEST_CASE("VisibleGpus: are all when the variable is unset") {
  CHECK(visible_gpus(kFour, nullptr) == 4);
  CHECK(visible_gpus({}, nullptr) == 0);
}

TEST_CASE("VisibleGpus: are named by indices and UUIDs") {
  CHECK(visible_gpus(kFour, "2,0") == 2);
  CHECK(visible_gpus(kFour, " 1 , 3 ") == 2);
  CHECK(visible_gpus(kFour, "GPU-cccc3333") == 1);
  CHECK(visible_gpus(kFour, "GPU-c,GPU-aabb,0") == 3);
  CHECK(visible_gpus(kFour, "MIG-1234,MIG-5678") == 2);
}

TEST_CASE("VisibleGpus: come in the order of the variable") {
  CHECK(visible_gpu_uuids(kFour, nullptr) == kFour);
  CHECK(visible_gpu_uuids(kFour, "2,GPU-aabb") == std::vector<std::string>{"GPU-cccc3333", "GPU-aabb2222"});
  CHECK(visible_gpu_uuids(kFour, "1,1") == std::vector<std::string>{});
}

TEST_CASE("VisibleGpus: end at an entry that names no device") {
  CHECK(visible_gpus(kFour, "") == 0);
  CHECK(visible_gpus(kFour, "-1") == 0);
  CHECK(visible_gpus(kFour, "0,4,1") == 1);
  CHECK(visible_gpus(kFour, "0,,1") == 1);
  UNSCOPED_INFO("an ambiguous beginning");
  CHECK(visible_gpus(kFour, "1,GPU-aa") == 1);
  CHECK(visible_gpus(kFour, "0,1x") == 1);
  CHECK(visible_gpus(kFour, "99999999999999999999") == 0);
}

TEST_CASE("VisibleGpus: a repeated device hides all") {
  CHECK(visible_gpus(kFour, "0,1,0") == 0);
  CHECK(visible_gpus(kFour, "0,GPU-aaaa1111") == 0);
}

}  // namespace
}  // namespace launcher
