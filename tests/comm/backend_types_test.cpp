// Backends as types: what the table knows, and one that this program adds.
#include "comm/backends/backend_types.h"

#include <ATen/ops/full.h>

#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/spawn.h>

#include "comm/group/group_state.h"
#include "tests/comm/counting_backend.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using detail::BackendType;
using detail::known_backends;
using detail::register_backend;

const auto kCalls = std::make_shared<std::atomic<int>>(0);
const auto kOtherCalls = std::make_shared<std::atomic<int>>(0);

[[maybe_unused]] const bool kRegistered = [] {
  register_backend(test::counting_backend("counting", kCalls));
  register_backend(test::counting_backend("other_counting", kOtherCalls));
  return true;
}();

float sum_of_ones(const GroupHandle& group) {
  at::Tensor tensor = at::full({2}, 1.0F);
  all_reduce(tensor, group);
  return tensor[0].item<float>();
}

std::string name_of(const GroupHandle& group, c10::DeviceType device) {
  return group.state().group("test")->getBackend(device)->getBackendName();
}

TEST_CASE("BackendTypes: those of the library are what torch distributed says of them") {
  const BackendMap both = parse_backend_map("cpu:gloo,cuda:nccl", known_backends());
  CHECK(both.cpu->wait_blocks);
  CHECK(both.cpu->receives_from_any);
  CHECK_FALSE(both.cpu->sends_on_device);
  CHECK_FALSE(both.cpu->needs_cuda);
  CHECK(both.cpu->default_timeout == std::chrono::minutes(30));
  CHECK_FALSE(both.cuda->serves_cpu);
  CHECK_FALSE(both.cuda->wait_blocks);
  CHECK_FALSE(both.cuda->receives_from_any);
  CHECK(both.cuda->sends_on_device);
  CHECK(both.cuda->coalesces_messages);
  CHECK(both.cuda->needs_cuda);
  CHECK(both.cuda->needs_torch_store);
  CHECK(both.cuda->title == "NCCL");
  CHECK(both.cuda->default_timeout == std::chrono::minutes(10));
  const BackendMap local = parse_backend_map("local", known_backends());
  CHECK(local.cpu->for_one_rank);
  CHECK_FALSE(local.cuda->wait_blocks);
}

TEST_CASE("BackendTypes: one that a program adds carries its ranks collectives") {
  const int before = *kCalls;
  spawn(2,
        [](const GroupHandle& group) {
          RANK_CHECK(group.backend() == "counting");
          RANK_CHECK(group.device().is_cpu());
          RANK_CHECK(sum_of_ones(group) == 2.0F);
          broadcast(at::full({2}, 1.0F), 0, group);
          barrier(group);
        },
        {.backend = "counting"});
  test::report_rank_checks();
  CHECK(*kCalls - before == 2 * 3);
}

TEST_CASE("BackendTypes: sub groups may name or inherit one that a program adds") {
  const int before = *kOtherCalls;
  spawn(3,
        [](const GroupHandle& group) {
          const auto inherits = new_group(group, {0, 2});
          const auto names = new_group(group, {1, 2}, {.backend = "cpu:other_counting"});
          if (inherits) {
            RANK_CHECK(inherits->backend() == "counting");
            RANK_CHECK(sum_of_ones(*inherits) == 2.0F);
          }
          if (names) {
            RANK_CHECK(names->backend() == "cpu:other_counting");
            RANK_CHECK(sum_of_ones(*names) == 2.0F);
          }
        },
        {.backend = "counting"});
  test::report_rank_checks();
  CHECK(*kOtherCalls - before == 2);
}

TEST_CASE("BackendTypes: two that a program adds serve a device each") {
  spawn(2,
        [](const GroupHandle& group) {
          RANK_CHECK(group.backend() == "cpu:counting,cuda:other_counting");
          RANK_CHECK(name_of(group, c10::kCPU) == "counting");
          RANK_CHECK(name_of(group, c10::kCUDA) == "other_counting");
          RANK_CHECK(sum_of_ones(group) == 2.0F);
        },
        {.backend = "cpu:counting,cuda:other_counting", .devices = {c10::Device(c10::kCPU), c10::Device(c10::kCPU)}});
  test::report_rank_checks();
}

TEST_CASE("BackendTypes: init_process_group takes one that a program adds") {
  const ProcessGroup group = init_process_group({.backend = "counting", .rank_info = RankInfo{}});
  CHECK(group.backend() == "counting");
  const int before = *kCalls;
  CHECK(sum_of_ones(group) == 1.0F);
  CHECK(*kCalls == before + 1);
}

TEST_CASE("BackendTypes: a name that nobody knows is refused with those that are known") {
  for (const char* name : {"couting", "cpu:couting", "cpu:gloo,cuda:couting"}) {
    CHECK_THROWS_MATCHES(init_process_group({.backend = name, .rank_info = RankInfo{}}), std::invalid_argument,
                         MessageMatches(ContainsSubstring("'couting' is not a known backend") &&
                                        ContainsSubstring("Use 'gloo', 'nccl', ") && ContainsSubstring("'counting'") &&
                                        ContainsSubstring("'other_counting'")));
  }
}

TEST_CASE("BackendTypes: refuses what could not be named or made") {
  const auto refused = [](const BackendType& type, const char* why) {
    CHECK_THROWS_MATCHES(register_backend(type), std::invalid_argument, MessageMatches(ContainsSubstring(why)));
  };
  const size_t before = known_backends().size();
  BackendType type = test::counting_backend("new", kCalls);
  for (const char* taken : {"gloo", "nccl", "local", "counting"}) {
    type.traits.name = taken;
    refused(type, "a backend with that name is already registered");
  }
  for (const char* unnameable : {"", "cpu:new", "new,newer"}) {
    type.traits.name = unnameable;
    refused(type, "without ':' and ','");
  }
  type.traits.name = "new";
  type.traits.serves_cpu = type.traits.serves_cuda = false;
  refused(type, "neither the CPU nor CUDA");
  type.traits.serves_cpu = true;
  type.make = nullptr;
  refused(type, "its function `make` is empty");
  CHECK(known_backends().size() == before);
}

TEST_CASE("BackendTypes: a backend refuses before its ranks wait for another") {
  BackendType type = test::counting_backend("unusable", kCalls);
  type.check = [](const RankInfo&) { throw std::runtime_error("this machine cannot"); };
  register_backend(type);
  CHECK_THROWS_MATCHES(init_process_group({.backend = "unusable", .rank_info = RankInfo{.rank = 0, .world_size = 2}}),
                       std::runtime_error, MessageMatches(ContainsSubstring("this machine cannot")));
  CHECK_THROWS_MATCHES(spawn(2, [](const GroupHandle&) { FAIL(); }, {.backend = "unusable"}), std::runtime_error,
                       MessageMatches(ContainsSubstring("this machine cannot")));
}

}  // namespace
}  // namespace ddp
