// Whether all ranks have the same communication hook is found out before a bucket is sent, once.
#include "comm/reducer/hook_agreement.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::error_of;

TensorFuture as_it_is(GradientBucket& bucket) {
  return completed_future(bucket.buffer());
}

// The number that the group's next collective gets.
uint64_t next_number(const GroupHandle& group) {
  const uint64_t number = group.state().next_operation("nothing");
  group.state().log().end(number);
  return number;
}

void expect_in_step(const GroupHandle& group) {
  const at::Tensor sum = at::ones({2});
  all_reduce(sum, group);
  RANK_CHECK_THAT(sum, test::EqualsTensor(at::full({2}, static_cast<float>(group.size()))));
}

// As a rank's first reduction does.
void verify(HookAgreement& agreement, const GroupHandle& group, const std::shared_ptr<ReductionFailure>& note) {
  if (agreement.begin(group, note)) agreement.finish_comparison();
}

class HookAgreements : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(HookAgreements, "HookAgreement: equal names pass, with one collective for all backwards") {
  run([](const GroupHandle& group) {
    const auto note = std::make_shared<ReductionFailure>();
    for (const std::string name : {"", "fp16_compress", "a name with 'quotes', \n and \xff"}) {
      HookAgreement agreement;
      if (!name.empty()) agreement.set(name);
      RANK_CHECK(agreement.name() == name);
      const uint64_t before = next_number(group);
      for (int step = 0; step < 5; ++step) verify(agreement, group, note);
      RANK_CHECK(next_number(group) - before == (group.size() == 1 ? 1U : 2U));
    }
    RANK_CHECK(note->get().empty());
    expect_in_step(group);
  });
}

TEST_CASE_METHOD(HookAgreements, "HookAgreement: a rank whose hook differs is named on all ranks, with both names") {
  if (size() == 1) return;
  const int odd = GENERATE(0, 1, 2, 3);
  if (odd >= size()) return;
  run([odd](const GroupHandle& group) {
    for (const auto& [usual, other] : std::vector<std::pair<std::string, std::string>>{
             {"", "custom"}, {"custom", ""}, {"fp16_compress", "bf16_compress"}, {"a", "A"}}) {
      const auto note = std::make_shared<ReductionFailure>();
      HookAgreement agreement;
      const std::string& name = group.rank() == odd ? other : usual;
      if (!name.empty()) agreement.set(name);
      const auto shown = [](const std::string& text) { return text.empty() ? "none" : "'" + text + "'"; };
      const std::string of_two =
          "rank 0 has " + shown(odd == 0 ? other : usual) + ", rank 1 has " + shown(odd == 1 ? other : usual);
      const std::string of_many =
          "rank " + std::to_string(odd) + " has " + shown(other) + ", the others " + shown(usual);
      const std::string error = error_of<std::runtime_error>([&] { verify(agreement, group, note); });
      RANK_CHECK(error == "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) +
                              ": the ranks' communication hooks differ: " + (group.size() == 2 ? of_two : of_many) +
                              ". Register the same hook on every rank, before the first backward");
      RANK_CHECK(note->get() == error);
    }
    expect_in_step(group);
  });
}

TEST_CASE_METHOD(HookAgreements, "HookAgreement: a hook that is registered later is compared again") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const auto note = std::make_shared<ReductionFailure>();
    HookAgreement agreement;
    verify(agreement, group, note);
    agreement.set("late");
    verify(agreement, group, note);
    agreement.set(group.rank() == 1 ? "later" : "late");
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { verify(agreement, group, note); }),
                    ContainsSubstring("communication hooks differ") && ContainsSubstring("'later'"));
    expect_in_step(group);
  });
}

TEST_CASE("HookAgreement: a rank that does not come is named, in the words of a collective") {
  std::atomic<bool> is_over{false};
  test::run_ranks(3,
                  [&](const GroupHandle& group) {
                    if (group.rank() == 1) {
                      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      return;
                    }
                    const auto note = std::make_shared<ReductionFailure>();
                    HookAgreement agreement;
                    const std::string error = error_of<std::runtime_error>([&] { verify(agreement, group, note); });
                    RANK_CHECK_THAT(error,
                                    StartsWith("rank " + std::to_string(group.rank()) +
                                               " of 3: comparison of the communication hooks (none here) (number 0) "
                                               "failed: ") &&
                                        ContainsSubstring("did not take part in it: rank 1"));
                    RANK_CHECK(note->get() == error);
                    is_over = true;
                  },
                  {.timeout = std::chrono::seconds(1)});
}

TEST_CASE("HookAgreement: ranks that compare several models in another order do not wait for each other for ever") {
  test::run_ranks(2, [](const GroupHandle& group) {
    const auto of_a = new_group(group, {0, 1});
    const auto of_b = new_group(group, {0, 1});
    const auto note = std::make_shared<ReductionFailure>();
    HookAgreement a;
    HookAgreement b;
    b.set(group.rank() == 0 ? "x" : "y");
    const std::string expected = who(of_b->info()) +
                                 ": the ranks' communication hooks differ: rank 0 has 'x', rank 1 "
                                 "has 'y'. Register the same hook on every rank, before the first backward";
    if (group.rank() == 0) {
      const bool is_open = a.begin(*of_a, note);
      RANK_CHECK(error_of<std::runtime_error>([&] { verify(b, *of_b, note); }) == expected);
      if (is_open) a.finish_comparison();
    } else {
      // In the first, if rank 0 comes while it waits.
      const std::string first = error_of<std::runtime_error>([&] { b.begin(*of_b, note); });
      verify(a, *of_a, note);
      const std::string second = error_of<std::runtime_error>([&] { b.finish_comparison(); });
      RANK_CHECK((first == expected) != (second == expected));
    }
    a.finish_comparison();  // of nothing
    RANK_CHECK(note->get() == expected);
    barrier(group);
  });
}

TEST_CASE("HookAgreement: names are compared in their first 128 bytes") {
  test::run_ranks(2, [](const GroupHandle& group) {
    const auto note = std::make_shared<ReductionFailure>();
    for (const size_t length : {127U, 128U, 500U}) {
      HookAgreement agreement;
      agreement.set(std::string(length, 'n') + (length < 128 && group.rank() == 1 ? "!" : ""));
      const bool differs = length < 128;
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { verify(agreement, group, note); }),
                      ContainsSubstring(differs ? "hooks differ" : "no error"));
    }
  });
}

TEST_CASE("HookAgreement: of any names the first that differs from a majority is told, without one the lowest two") {
  using Names = std::vector<std::string>;
  CHECK(hook_difference({"a"}).empty());
  CHECK(hook_difference({"", ""}).empty());
  CHECK(hook_difference({"", "a"}) == "rank 0 has none, rank 1 has 'a'");
  CHECK(hook_difference({"a", "", ""}) == "rank 0 has 'a', the others none");
  CHECK(hook_difference({"a", "a", "b", "a", "c"}) == "rank 2 has 'b', the others 'a'");
  CHECK(hook_difference({"a", "a", "b", "b"}) == "rank 0 has 'a', rank 2 has 'b'");
  CHECK(hook_difference({"a", "b", "c"}) == "rank 0 has 'a', rank 1 has 'b'");
  // Random lists against what has to be true of every answer.
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Names names(1 + random() % 7);
    for (std::string& name : names) name = std::string(1, static_cast<char>('a' + random() % 3));
    const std::string told = hook_difference(names);
    const bool all_equal = std::ranges::all_of(names, [&](const auto& name) { return name == names[0]; });
    CHECK(told.empty() == all_equal);
    if (all_equal) continue;
    const auto named = static_cast<size_t>(std::stoi(told.substr(5)));
    CHECK_THAT(told, ContainsSubstring("rank " + std::to_string(named) + " has '" + names.at(named) + "'"));
    const auto others = told.find(", the others '");
    if (others == std::string::npos) continue;
    const std::string usual(1, told.at(others + 14));
    CHECK(2 * std::ranges::count(names, usual) > std::ssize(names));
    CHECK(std::ranges::find_if(names, [&](const auto& name) { return name != usual; }) - names.begin() ==
          static_cast<std::ptrdiff_t>(named));
  }
}

TEST_CASE("HookAgreement: a rank without connections has nobody to compare with") {
  const auto note = std::make_shared<ReductionFailure>();
  HookAgreement agreement;
  agreement.set("mine");
  CHECK_NOTHROW(verify(agreement, test::unconnected_rank(0, 1), note));
  CHECK_NOTHROW(verify(agreement, test::unconnected_rank(1, 2), note));
  CHECK(note->get().empty());
}

TEST_CASE("CommHook: has the name that it was given, and is the hook that it was") {
  CHECK(hook_name({}).empty());
  CHECK(hook_name(as_it_is) == "custom");
  CHECK(hook_name([](GradientBucket& bucket) { return as_it_is(bucket); }) == "custom");
  const CommHook inner = named_hook("inner", as_it_is);
  CHECK(hook_name(inner) == "inner");
  const CommHook copy = inner;
  CHECK(hook_name(copy) == "inner");
  CHECK(hook_name(named_hook("outer", inner)) == "outer");
  CHECK(hook_name([inner](GradientBucket& bucket) { return inner(bucket); }) == "custom");
}

TEST_CASE("CommHook: names belong to hooks, and hooks to names") {
  CHECK_THAT(error_of<std::invalid_argument>([] { named_hook("", as_it_is); }), ContainsSubstring("an empty name"));
  CHECK_THAT(error_of<std::invalid_argument>([] { named_hook("mine", {}); }),
             ContainsSubstring("an empty hook named 'mine'"));
}

}  // namespace
}  // namespace ddp::detail
