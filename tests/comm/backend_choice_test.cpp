#include "comm/core/backend_map.h"
#include "tests/comm/sample_backends.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using test::kSampleBackends;

bool must_not_be_asked() {
  FAIL("the answer would load CUDA for nothing");
  return false;
}

std::string choice(const std::string& named, const RanksToConnect& ranks) {
  return choose_backends(named, ranks, kSampleBackends).text();
}

TEST_CASE("BackendChoice: what the user names is taken without a look at the devices") {
  for (const bool is_single_process : {false, true}) {
    const RanksToConnect ranks{.is_single_process = is_single_process, .have_cuda_device_each = must_not_be_asked};
    CHECK(choice("gloo", ranks) == "gloo");
    CHECK(choice("cpu:shout,cuda:nccl", ranks) == "cpu:shout,cuda:nccl");
  }
}

TEST_CASE("BackendChoice: a single process needs no network whatever its devices") {
  CHECK(choice("", {.is_single_process = true, .have_cuda_device_each = must_not_be_asked}) == "local");
}

TEST_CASE("BackendChoice: ranks with a CUDA device each get nccl for it and others gloo") {
  CHECK(choice("", {.have_cuda_device_each = [] { return true; }}) == "cpu:gloo,cuda:nccl");
  CHECK(choice("", {.have_cuda_device_each = [] { return false; }}) == "gloo");
}

TEST_CASE("BackendChoice: another backend may stand in gloo's place, but not in that of a name or of no network") {
  CHECK(choice("", {.have_cuda_device_each = [] { return true; }, .on_cpu = "shout"}) == "cpu:shout,cuda:nccl");
  CHECK(choice("", {.have_cuda_device_each = [] { return false; }, .on_cpu = "shout"}) == "shout");
  CHECK(choice("gloo", {.have_cuda_device_each = must_not_be_asked, .on_cpu = "shout"}) == "gloo");
  CHECK(choice("", {.is_single_process = true, .on_cpu = "shout"}) == "local");
}

TEST_CASE("BackendChoice: the CPU's default is shared memory unless the environment names another") {
  const auto with = [](const std::string& text) {
    return default_cpu_backend(
        [&](const std::string& name) { return name == "DDPRUN_CPU_BACKEND" ? std::optional(text) : std::nullopt; });
  };
  CHECK(default_cpu_backend([](const std::string&) { return std::optional<std::string>(); }) == "shm");
  CHECK(with("") == "shm");
  CHECK(with("gloo") == "gloo");
}

TEST_CASE("BackendChoice: what moves nothing cannot connect ranks") {
  const BackendMap local = parse_backend_map("local", kSampleBackends);
  CHECK(can_connect(local, 1));
  CHECK_FALSE(can_connect(local, 2));
  CHECK(can_connect(parse_backend_map("gloo", kSampleBackends), 2));
}

}  // namespace
}  // namespace ddp
