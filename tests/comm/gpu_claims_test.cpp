// Ranks as threads, each with its own connection to the store.
#include "comm/group/gpu_claims.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/group/bounded_store.h"
#include "tests/comm/store_server.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Clock = std::chrono::steady_clock;
using test::error_of;

constexpr auto kClaimLimit = 60s;

class GpuClaims {
 protected:
  // What each rank is told; a rank without a GPU makes no claim, as those that run Python.
  std::vector<std::string> claim(const std::vector<std::string>& gpus,
                                 std::chrono::milliseconds patience = kClaimLimit) {
    std::vector<std::string> told(gpus.size(), "no error");
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank < gpus.size(); ++rank) {
      if (gpus[rank].empty()) continue;
      ranks.emplace_back([&, rank] {
        RankInfo info;
        info.rank = static_cast<int>(rank);
        info.world_size = static_cast<int>(gpus.size());
        const auto store = c10::make_intrusive<BoundedStore>("127.0.0.1", server_->getPort(), kClaimLimit);
        told[rank] = error_of([&] {
          claim_gpu(*store, info,
                    {.uuid = gpus[rank], .backend = "NCCL", .patience = patience, .hosts_store = rank == 0});
        });
      });
    }
    for (auto& rank : ranks) rank.join();
    return told;
  }

  c10::intrusive_ptr<c10d::TCPStore> server_ = test::make_store_server(kClaimLimit);
};

TEST_CASE_METHOD(GpuClaims, "GpuClaims: ranks with GPUs of their own go on as soon as all have come") {
  CHECK(claim({"a", "b", "c"}) == std::vector<std::string>(3, "no error"));
}

TEST_CASE_METHOD(GpuClaims, "GpuClaims: every rank learns that two share a GPU, whoever came first") {
  const int round = GENERATE(range(0, 10));
  INFO("round " << round);
  const auto told = claim({"a", "b", "a", "c"});
  for (size_t rank = 0; rank < told.size(); ++rank) {
    CHECK_THAT(told[rank], ContainsSubstring("rank " + std::to_string(rank) + " of 4: ranks ") &&
                               (ContainsSubstring("ranks 0 and 2 use") || ContainsSubstring("ranks 2 and 0 use")) &&
                               ContainsSubstring("the same GPU (a), and NCCL needs one GPU per rank"));
  }
}

TEST_CASE_METHOD(GpuClaims, "GpuClaims: ranks that make no claim are left to the backend") {
  CHECK(claim({"a", "", "b"}, 200ms) == std::vector<std::string>(3, "no error"));
}

TEST_CASE_METHOD(GpuClaims, "GpuClaims: a refusal is known although some make no claim") {
  const auto told = claim({"a", "", "a"}, 3s);  // both come within it
  for (const size_t rank : {0U, 2U}) CHECK_THAT(told[rank], ContainsSubstring("use the same GPU (a)"));
}

TEST_CASE_METHOD(GpuClaims, "GpuClaims: a store that is gone is named") {
  RankInfo info;
  info.rank = 1;
  info.world_size = 2;
  const auto store = c10::make_intrusive<BoundedStore>("127.0.0.1", server_->getPort(), kClaimLimit);
  server_.reset();
  CHECK_THAT(error_of([&] { claim_gpu(*store, info, {.uuid = "a", .backend = "NCCL"}); }),
             ContainsSubstring("rank 1 of 2: could not agree with the other ranks on which rank uses which GPU"));
}

}  // namespace
}  // namespace ddp::detail
