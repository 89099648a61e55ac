// Buckets that the group itself sums: by c10d's all-reduce, or from rank to rank.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/group/group_state.h"
#include "comm/reducer/reduction_context.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::EqualsTensor;
using test::error_of;

// Whole numbers whose sums every floating-point dtype holds, other ones for each rank and salt.
at::Tensor numbers(at::IntArrayRef shape, at::ScalarType dtype, int rank, int salt) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 * salt + rank));
  return at::randint(-8, 9, shape, generator).to(dtype);
}

at::Tensor sum_of_numbers(at::IntArrayRef shape, at::ScalarType dtype, int size, int salt) {
  at::Tensor sum = numbers(shape, at::kDouble, 0, salt);
  for (int rank = 1; rank < size; ++rank) sum = sum + numbers(shape, at::kDouble, rank, salt);
  return sum.to(dtype);
}

// As ReductionContext does, outside of a backward.
at::Tensor finish(BucketTransport& transport, const TensorFuture& started) {
  if (started) started->wait();
  return transport.finish(started.get()).toTensorVector().at(0);
}

struct Bucket {
  at::Tensor tensor;
  at::Tensor expected;
  std::shared_ptr<BucketTransport> transport{};
  TensorFuture started{};
};

class Transports : protected test::EveryWireAndSize {
 protected:
  // Of all kinds: small and large, empty, without dimensions, of every dtype that gradients have.
  static std::vector<Bucket> buckets(const GroupHandle& group) {
    std::vector<Bucket> all;
    int salt = 0;
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{1}, {}, {0}, {3, 5}, {1000}, {16384}, {40000}}) {
        ++salt;
        all.push_back({.tensor = numbers(shape, dtype, group.rank(), salt),
                       .expected = sum_of_numbers(shape, dtype, group.size(), salt)});
      }
    }
    return all;
  }
};

TEST_CASE_METHOD(Transports, "GroupTransport: the sum over the ranks is left in the bucket") {
  run([](const GroupHandle& group) {
    const auto note = std::make_shared<ReductionFailure>();
    for (Bucket& bucket : buckets(group)) {
      RANK_INFO(bucket.tensor.scalar_type() << " of shape " << bucket.tensor.sizes());
      const auto transport = group_transport(group, bucket.tensor, note);
      const at::Tensor sum = finish(*transport, transport->start());
      RANK_CHECK(sum.data_ptr() == bucket.tensor.data_ptr());
      RANK_CHECK_THAT(bucket.tensor, EqualsTensor(bucket.expected));
    }
    RANK_CHECK(note->get().empty());
  });
}

TEST_CASE_METHOD(Transports, "GroupTransport: all buckets of a backward may be under way at once") {
  run([](const GroupHandle& group) {
    const auto note = std::make_shared<ReductionFailure>();
    std::vector<Bucket> all = buckets(group);
    for (Bucket& bucket : all) {
      bucket.transport = group_transport(group, bucket.tensor, note);
      bucket.started = bucket.transport->start();
    }
    for (Bucket& bucket : all) {
      finish(*bucket.transport, bucket.started);
      RANK_CHECK_THAT(bucket.tensor, EqualsTensor(bucket.expected));
    }
  });
}

TEST_CASE_METHOD(Transports,
                 "GroupTransport: each takes a number in the order of starts and gives it back at its end") {
  run([](const GroupHandle& group) {
    const auto note = std::make_shared<ReductionFailure>();
    const auto calls = [&] { return group.state().log().report().calls; };
    const size_t before = calls().size();
    std::vector<at::Tensor> tensors;
    std::vector<std::shared_ptr<BucketTransport>> transports;
    for (int64_t size = 1; size <= 3; ++size) {
      tensors.push_back(at::ones({size}));
      transports.push_back(group_transport(group, tensors.back(), note));
    }
    RANK_CHECK(calls().size() == before);  // one that is refused before its start has none
    std::vector<TensorFuture> started;
    for (const auto& transport : transports) started.push_back(transport->start());
    for (size_t i = 0; i < transports.size(); ++i) {
      RANK_CHECK(calls().at(before + i).signature ==
                 "all_reduce of a gradient bucket of " + std::to_string(4 * (i + 1)) + " bytes");
      finish(*transports[i], started[i]);
      RANK_CHECK(calls().at(before + i).ended);
    }
  });
}

TEST_CASE_METHOD(Transports,
                 "GroupTransport: buckets in shared memory, and small ones of two ranks on gloo, tell only at the end, "
                 "others by a future") {
  run([](const GroupHandle& group) {
    for (const at::Tensor& tensor : {at::ones({4}), at::ones({1 << 20}), at::ones({0})}) {
      const auto transport = group_transport(group, tensor, std::make_shared<ReductionFailure>());
      const TensorFuture started = transport->start();
      const bool is_direct = test::exchanges_directly(group) && tensor.numel() == 4;
      RANK_CHECK((started == nullptr) == (is_direct || group.state().all_reduce_traits().in_call));
      finish(*transport, started);
    }
  });
}

TEST_CASE_METHOD(Transports, "GroupTransport: sparse gradients are summed as such, also where ranks have none") {
  run([](const GroupHandle& group) {
    at::Tensor dense = at::zeros({5, 2});
    if (group.rank() != 1) dense[group.rank()].fill_(group.rank() + 1.F);
    dense[4].fill_(1);
    const at::Tensor sparse = dense.to_sparse(1);
    const auto transport = group_transport(group, sparse, std::make_shared<ReductionFailure>());
    const at::Tensor sum = finish(*transport, transport->start());
    at::Tensor expected = at::zeros({5, 2});
    for (int rank = 0; rank < group.size(); ++rank) {
      if (rank != 1) expected[rank] += rank + 1.F;
      expected[4] += 1;
    }
    RANK_CHECK(sum.is_sparse());
    RANK_CHECK_THAT(sum.to_dense(), EqualsTensor(expected));
  });
}

TEST_CASE("GroupTransport: on a closed group the start says so, whichever way the bucket would have gone") {
  for (const int64_t size : {int64_t{4}, int64_t{1} << 20}) {
    test::run_ranks(2, [size](const GroupHandle& group) {
      const at::Tensor tensor = at::ones({size});
      barrier(group);
      group.state().close();
      const auto note = std::make_shared<ReductionFailure>();
      const auto transport = group_transport(group, tensor, note);
      const std::string error = error_of<std::runtime_error>([&] { transport->start(); });
      RANK_CHECK_THAT(error, StartsWith("rank " + std::to_string(group.rank()) +
                                        " of 2: all_reduce of a gradient "
                                        "bucket of ") &&
                                 ContainsSubstring("DistributedDataParallel") && ContainsSubstring("closed"));
      RANK_CHECK(note->get() == error);
      RANK_CHECK_THAT(tensor, EqualsTensor(at::ones({size})));
    });
  }
}

TEST_CASE("GroupTransport: a rank that does not come is named with the bucket, whichever way it goes") {
  const auto wire = GENERATE(test::Wire::kGloo, test::Wire::kShm, test::Wire::kLate);
  const int64_t size = GENERATE(int64_t{4}, int64_t{1} << 15);
  INFO("wire: " << wire << ", elements: " << size);
  std::atomic<bool> is_over{false};
  test::run_ranks(2,
                  [&](const GroupHandle& group) {
                    if (group.rank() == 1) {
                      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      return;
                    }
                    const at::Tensor tensor = at::ones({size});
                    const auto note = std::make_shared<ReductionFailure>();
                    const auto transport = group_transport(group, tensor, note);
                    const TensorFuture started = transport->start();
                    const std::string error = error_of<std::runtime_error>([&] { finish(*transport, started); });
                    RANK_CHECK_THAT(error, StartsWith("rank 0 of 2: all_reduce of a gradient bucket of " +
                                                      std::to_string(4 * size) + " bytes (number 0) failed: ") &&
                                               ContainsSubstring("did not take part in it: rank 1"));
                    RANK_CHECK(note->get() == error);
                    is_over = true;
                  },
                  {.wire = wire, .timeout = std::chrono::seconds(1)});
}

}  // namespace
}  // namespace ddp::detail
