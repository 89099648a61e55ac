// What DdpOptions say together: what fits, what ranks compare, and what is shown.
#include "comm/reducer/option_rules.h"

#include <ATen/ops/zeros.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/versions/reducer_options.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;

constexpr int64_t kMebibyte = int64_t{1} << 20;

TEST_CASE("OptionRules: the first bucket is Python's where nobody asks, and never above the others") {
  CHECK(first_bucket_bytes({}) == kMebibyte);
  CHECK(first_bucket_bytes({.bucket_cap_bytes = kAutoBucketCap}) == kMebibyte);
  UNSCOPED_INFO("a size that is named is the first one's too, even Python's default");
  for (const int64_t bytes :
       {int64_t{1}, int64_t{100}, 25 * kMebibyte, 26 * kMebibyte, std::numeric_limits<int64_t>::max()}) {
    CHECK(first_bucket_bytes({.bucket_cap_bytes = bytes}) == bytes);
    CHECK(first_bucket_bytes({.bucket_cap_bytes = bytes, .first_bucket_bytes = 64}) == std::min<int64_t>(bytes, 64));
  }
  CHECK(first_bucket_bytes({.first_bucket_bytes = 100 * kMebibyte}) == 25 * kMebibyte);
  CHECK(first_bucket_bytes({.bucket_cap_bytes = kAutoBucketCap, .first_bucket_bytes = 7}) == 7);
}

TEST_CASE("OptionRules: what cannot be had is refused with the rank") {
  check_options({}, "rank 1 of 2");
  const std::vector<std::pair<DdpOptions, std::string>> cases{
      {{.bucket_cap_bytes = 0}, "bucket_cap_bytes=0"},
      {{.bucket_cap_bytes = -1}, "bucket_cap_bytes=-1"},
      {{.bucket_cap_bytes = std::numeric_limits<int64_t>::min()}, "must be positive"},
      {{.bucket_cap_bytes = -5, .first_bucket_bytes = 64}, "bucket_cap_bytes=-5 and first_bucket_bytes=64: both"},
      {{.first_bucket_bytes = 0}, "first_bucket_bytes=0"},
      {{.first_bucket_bytes = -3}, "first_bucket_bytes=-3"},
      {{.skip_all_reduce_unused_params = true}, "skip_all_reduce_unused_params needs find_unused_parameters"},
      {{.delayed = {.names = {"weight"}}}, "delayed.names and delayed.trigger"},
      {{.delayed = {.trigger = "weight"}}, "delayed.names and delayed.trigger"},
      {{.bucket_cap_bytes = kAutoBucketCap, .bucket_ends = {"weight"}}, "cannot be combined"},
      {{.bucket_cap_bytes_list = {300, 0}}, "bucket_cap_bytes_list = 300, 0: all must be positive"},
      {{.bucket_cap_bytes = 300, .bucket_cap_bytes_list = {300}},
       "bucket_cap_bytes_list cannot be combined with bucket_cap_bytes"},
      {{.bucket_cap_bytes = kAutoBucketCap, .bucket_cap_bytes_list = {300}},
       "bucket_cap_bytes_list cannot be combined"},
      {{.first_bucket_bytes = 300, .bucket_cap_bytes_list = {300}}, "bucket_cap_bytes_list cannot be combined"},
      {{.bucket_cap_bytes_list = {300}, .bucket_ends = {"weight"}}, "bucket_cap_bytes_list cannot be combined"}};
  for (const auto& [options, why] : cases) {
    const DdpOptions& refused = options;
    CHECK_THAT(error_of<std::invalid_argument>([&] { check_options(refused, "rank 1 of 2"); }),
               ContainsSubstring("rank 1 of 2: DistributedDataParallel: ") && ContainsSubstring(why));
  }
}

TEST_CASE("OptionRules: each option that has to be alike makes a line of its own differ, and no other one does") {
  const std::vector<std::string> usual = options_to_compare({});
  const auto differing = [&](const DdpOptions& options) {
    const std::vector<std::string> lines = options_to_compare(options);
    REQUIRE(lines.size() == usual.size());
    std::vector<std::string> others;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i] != usual[i]) others.push_back(lines[i]);
    }
    return others;
  };
  const CommHook completed = [](GradientBucket& bucket) { return completed_future(bucket.buffer()); };
  using Lines = std::vector<std::string>;
  CHECK(differing({.bucket_cap_bytes = BucketCap::kDefaultBytes}) ==
        Lines{"option first_bucket_bytes = 26214400"});  // as the default's first is smaller
  CHECK(differing({.bucket_cap_bytes = kAutoBucketCap}) == Lines{"option bucket_cap_bytes = auto"});
  CHECK(differing({.first_bucket_bytes = 5}) == Lines{"option first_bucket_bytes = 5"});
  CHECK(differing({.find_unused_parameters = true}) == Lines{"option find_unused_parameters = true"});
  CHECK(differing({.static_graph = true}) == Lines{"option static_graph = true"});
  CHECK(differing({.broadcast_buffers = false}) ==
        Lines{"option broadcast_buffers = false", "option forward_sync_buffers = false"});
  CHECK(differing({.forward_sync_buffers = false}) == Lines{"option forward_sync_buffers = false"});
  CHECK(differing({.forward_sync_buffers = true}).empty());
  CHECK(differing({.bucket_cap_bytes_list = {300, 200}}) == Lines{"option bucket_cap_bytes_list = 300, 200"});
  CHECK(differing({.skip_all_reduce_unused_params = true}) == Lines{"option skip_all_reduce_unused_params = true"});
  CHECK(differing({.bucket_ends = {"a", "b"}}) == Lines{"option bucket_ends = a, b"});
  CHECK(differing({.delayed = {.names = {"a", "b"}, .trigger = "c"}}) == Lines{"option delayed = a, b with c"});
  CHECK(differing({.comm_hook = completed}) == Lines{"option comm_hook = custom"});
  CHECK(differing({.comm_hook = named_hook("mine", completed)}) == Lines{"option comm_hook = mine"});
  UNSCOPED_INFO("what a rank does with its own memory is its own matter");
  CHECK(differing({.gradient_as_bucket_view = false}).empty());
  CHECK(differing({.check_gradients = true}).empty());
}

TEST_CASE("OptionRules: gradients of small parameters are copied together unless the user says otherwise") {
  const ReducedModel small{.name = "Net", .parameters = {at::zeros({8, 8}), at::zeros({8})}, .names = {"a", "b"}};
  const ReducedModel large{.name = "Net", .parameters = {at::zeros({512, 512}), at::zeros({8})}, .names = {"a", "b"}};
  const bool has_it = versions::unsupported({.batched_grad_copy = true}).empty();
  CHECK(copies_in_batches({}, small, 4) == has_it);
  CHECK_FALSE(copies_in_batches({}, small, 3));  // a third is not a number of theirs
  CHECK_FALSE(copies_in_batches({}, large, 2));
  CHECK(copies_in_batches({.batched_grad_copy = true}, large, 3));
  CHECK_FALSE(copies_in_batches({.batched_grad_copy = false}, small, 2));
  CHECK_FALSE(copies_in_batches({.delayed = {.names = {"a"}, .trigger = "b"}}, small, 2));
}

TEST_CASE("OptionRules: caps of single buckets take the place of the other sizes") {
  CHECK(bucket_limits({}) == std::vector<size_t>{1 << 20, 25 << 20});
  CHECK(largest_bucket_bytes({}) == 25 << 20);
  CHECK(bucket_limits({.bucket_cap_bytes_list = {300, 500, 200}}) == std::vector<size_t>{300, 500, 200});
  CHECK(largest_bucket_bytes({.bucket_cap_bytes_list = {300, 500, 200}}) == 500);
  check_options({.bucket_cap_bytes_list = {300, 200}}, "rank 1 of 2");
}

TEST_CASE("OptionRules: forward_sync_buffers decides of forwards, and then all begin with equal buffers") {
  CHECK((syncs_buffers_at_start({}) && syncs_buffers_in_forward({})));
  CHECK_FALSE(
      (syncs_buffers_at_start({.broadcast_buffers = false}) || syncs_buffers_in_forward({.broadcast_buffers = false})));
  for (const bool broadcast : {false, true}) {
    for (const bool forward : {false, true}) {
      const DdpOptions options{.broadcast_buffers = broadcast, .forward_sync_buffers = forward};
      CHECK(syncs_buffers_at_start(options));
      CHECK(syncs_buffers_in_forward(options) == forward);
    }
  }
}

TEST_CASE("OptionRules: what Python's DDP does not have is named") {
  CHECK(option_not_in_python({}) == nullptr);
  CHECK(option_not_in_python({.find_unused_parameters = true, .static_graph = true}) == nullptr);
  CHECK(option_not_in_python({.check_gradients = true}) == nullptr);  // concerns this rank alone
  CHECK(std::string(option_not_in_python({.bucket_ends = {"a"}})) == "bucket_ends");
  CHECK(std::string(option_not_in_python({.bucket_cap_bytes = kAutoBucketCap})) == "kAutoBucketCap");
}

TEST_CASE("OptionRules: logging data begin with the options, the model and the rank") {
  const ReducedModel model{.name = "Net",
                           .parameters = {at::zeros({2, 3}), at::zeros({}, at::kDouble), at::zeros({0, 5})},
                           .names = {"a", "b", "c"}};
  CHECK(model.bytes() == 24 + 8);
  const DdpLoggingData data = logging_data({.bucket_cap_bytes = 77, .static_graph = true, .broadcast_buffers = false},
                                           model, test::unconnected_rank(2, 3));
  CHECK((data.module_name == "Net" && data.rank == 2 && data.world_size == 3));
  CHECK((data.parameter_tensors == 3 && data.parameter_bytes == 32 && data.bucket_cap_bytes == 77));
  CHECK((data.static_graph && !data.broadcast_buffers && !data.find_unused_parameters && data.gradient_as_bucket_view));
  CHECK((data.iteration == 0 && data.bucket_bytes.empty() && data.error.empty()));
}

}  // namespace
}  // namespace ddp::detail
