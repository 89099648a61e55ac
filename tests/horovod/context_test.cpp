// Horovod's operations with everything that users may bring, against closed forms.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/process_group.h>

#include "ddprun/horovod/horovod.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::horovod {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;

// A context owns its group: one of all ranks, of its own.
Context context_on(const GroupHandle& group) {
  std::vector<int> everybody;
  for (int rank = 0; rank < group.size(); ++rank) everybody.push_back(rank);
  return Context(std::move(*new_group(group, everybody)));
}

std::string me(const Context& hvd) {
  return who(hvd.group().info());  // "rank 1 of 4 in a sub-group (rank 1 of 4)"
}

class Contexts : protected test::EveryWireAndSize {
 protected:
  void on_ranks(const std::function<void(const Context&)>& body) const {
    run([&](const GroupHandle& group) {
      const Context hvd = context_on(group);
      body(hvd);
      const at::Tensor sum = hvd.allreduce(here(at::ones({1})), {.op = Op::kSum});
      RANK_CHECK(sum.item<float>() == static_cast<float>(hvd.size()));
    });
  }
};

TEST_CASE_METHOD(Contexts, "Context: allreduce leaves its argument alone and allreduce_ returns it") {
  on_ranks([](const Context& hvd) {
    const float n = static_cast<float>(hvd.size());
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {3}, {2, 0, 1}, {2, 3}}) {
      const at::Tensor mine = here(at::full(shape, hvd.rank() + 1.F));
      const at::Tensor before = mine.clone();
      RANK_CHECK_THAT(hvd.allreduce(mine, {.op = Op::kSum}), EqualsTensor(at::full(shape, n * (n + 1) / 2)));
      RANK_CHECK_THAT(hvd.allreduce(mine), EqualsTensor(at::full(shape, (n + 1) / 2)));
      RANK_CHECK_THAT(mine, EqualsTensor(before));
      at::Tensor in_place = mine.clone();
      RANK_CHECK(hvd.allreduce_(in_place, {.op = Op::kMax}).is_same(in_place));
      RANK_CHECK_THAT(in_place, EqualsTensor(at::full(shape, n)));
      auto pending = hvd.allreduce_async_(in_place, {.op = Op::kProduct});
      RANK_CHECK(Context::synchronize(pending).is_same(in_place));
      RANK_CHECK(Context::poll(pending));
    }
  });
}

TEST_CASE_METHOD(Contexts, "Context: new tensors are made of any view, of leaves as well, and record nothing") {
  on_ranks([](const Context& hvd) {
    const float n = static_cast<float>(hvd.size());
    const at::Tensor matrix = here(at::arange(6, at::kFloat)).view({2, 3});
    const std::vector<at::Tensor> views{matrix.t(),
                                        matrix.slice(1, 0, 3, 2),
                                        here(at::ones({1})).expand({4}),
                                        at::_neg_view(matrix),
                                        matrix.clone().requires_grad_(),
                                        matrix.clone().requires_grad_().mul(2),
                                        at::complex(matrix, matrix + 1).conj()};
    for (size_t i = 0; i < views.size(); ++i) {
      RANK_INFO("view " << i);
      const at::Tensor expected = views[i].detach().resolve_conj().resolve_neg().contiguous();
      const at::Tensor sum = hvd.allreduce(views[i], {.op = Op::kSum});
      RANK_CHECK_THAT(sum, EqualsTensor(expected * n));
      RANK_CHECK_FALSE(sum.requires_grad());
      RANK_CHECK_THAT(hvd.grouped_allreduce({views[i]}, {.op = Op::kSum}).at(0), EqualsTensor(expected * n));
      RANK_CHECK_THAT(hvd.broadcast(views[i], 0), EqualsTensor(expected));
    }
  });
}

TEST_CASE_METHOD(Contexts, "Context: factors come before and after, and only where numbers have fractions") {
  on_ranks([](const Context& hvd) {
    const float n = static_cast<float>(hvd.size());
    const AllreduceOptions factors{.op = Op::kSum, .prescale_factor = 0.5, .postscale_factor = 3};
    RANK_CHECK_THAT(hvd.allreduce(here(at::full({2}, 4.F)), factors), EqualsTensor(at::full({2}, 6 * n)));
    RANK_CHECK_THAT(
        hvd.grouped_allreduce({here(at::full({2}, 4.F)), here(at::full({1}, 2., at::kDouble))}, factors).at(1),
        EqualsTensor(at::full({1}, 3. * n, at::kDouble)));
    RANK_CHECK_THAT(hvd.allreduce(here(at::full({1}, -4.F)), {.op = Op::kMax, .prescale_factor = -1}),
                    EqualsTensor(at::full({1}, 4.F)));
    for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kByte, at::kBool}) {
      const at::Tensor whole = here(at::ones({2}, dtype));
      const auto expected = ContainsSubstring(me(hvd) + ": allreduce: prescale_factor and postscale_factor need");
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { hvd.allreduce(whole, factors); }), expected);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { hvd.allreduce_(whole.clone(), factors); }), expected);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { hvd.grouped_allreduce({whole}, factors); }), expected);
    }
  });
}

TEST_CASE_METHOD(Contexts, "Context: wrong arguments are refused with the rank") {
  on_ranks([](const Context& hvd) {
    const at::Tensor good = here(at::ones({2}));
    const std::vector<std::function<void()>> calls{
        [&] { hvd.allreduce(at::Tensor()); },
        [&] { hvd.allreduce_(at::Tensor()); },
        [&] {
          hvd.allreduce_(here(at::ones({2, 3})).t());
        },
        [&] { hvd.allreduce(at::ones({2}).to_sparse()); },
        [&] { hvd.allreduce(at::empty({2}, at::device(at::kMeta))); },
        [&] { hvd.allreduce(here(at::ones({2}, at::kLong))); },  // the average
        [&] {
          hvd.grouped_allreduce({good, at::Tensor()});
        },
        [&] { hvd.allgather(at::Tensor()); },
        [&] { hvd.allgather(here(at::ones({}))); },
        [&] { hvd.broadcast(good, -1); },
        [&] { hvd.broadcast(good, hvd.size()); },
        [&] { hvd.broadcast(at::Tensor(), 0); },
        [&] { hvd.broadcast_(at::Tensor(), 0); },
        [&] { hvd.broadcast_object("", hvd.size()); },
        [&] { hvd.reducescatter(here(at::ones({})), Op::kSum); },
        [&] { hvd.reducescatter(good, Op::kAdasum); },
        [&] { hvd.alltoall(good, {5}); },
        [&] { hvd.alltoall(good, std::vector<int64_t>(static_cast<size_t>(hvd.size()), -1)); }};
    for (size_t i = 0; i < calls.size(); ++i) {
      RANK_INFO("call " << i);
      RANK_CHECK_THAT(error_of<std::invalid_argument>(calls[i]), ContainsSubstring(me(hvd)));
    }
  });
}

TEST_CASE_METHOD(Contexts, "Context: allgather joins rows of different lengths, none included") {
  on_ranks([](const Context& hvd) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kLong, at::kBool, at::kComplexDouble}) {
      std::vector<at::Tensor> all;
      for (int rank = 0; rank < hvd.size(); ++rank) all.push_back(here(at::full({rank, 2}, rank % 2)).to(dtype));
      const at::Tensor mine = all[static_cast<size_t>(hvd.rank())];
      RANK_CHECK_THAT(hvd.allgather(mine), EqualsTensor(at::cat(all)));
      auto pending = hvd.allgather_async(mine);
      RANK_CHECK_THAT(Context::synchronize(pending), EqualsTensor(at::cat(all)));
      RANK_CHECK_THAT(Context::synchronize(pending), EqualsTensor(at::cat(all)));
    }
  });
}

TEST_CASE_METHOD(Contexts, "Context: alltoall takes splits with nothing for some") {
  on_ranks([](const Context& hvd) {
    const int n = hvd.size();
    // Rank r sends r rows to the last rank and none to the others.
    std::vector<int64_t> splits(static_cast<size_t>(n), 0);
    splits.back() = hvd.rank();
    const at::Tensor received = hvd.alltoall(here(at::full({hvd.rank(), 2}, hvd.rank() + 0.5F)), splits);
    std::vector<at::Tensor> expected{here(at::zeros({0, 2}))};
    for (int rank = 0; rank < n && hvd.rank() == n - 1; ++rank)
      expected.push_back(here(at::full({rank, 2}, rank + 0.5F)));
    RANK_CHECK_THAT(received, EqualsTensor(at::cat(expected)));
  });
}

TEST_CASE("Context: nothing but its places is left after shutdown") {
  Context hvd = init({.rank_info = RankInfo{}});
  CHECK(hvd.is_initialized());
  Context moved = std::move(hvd);
  moved.shutdown();
  moved.shutdown();
  CHECK_FALSE(moved.is_initialized());
  CHECK((moved.rank() == 0 && moved.size() == 1 && moved.local_rank() == 0 && moved.local_size() == 1));
  CHECK_THAT(error_of<std::runtime_error>([&] { moved.allreduce(here(at::ones({1}))); }), ContainsSubstring("closed"));
  CHECK_THAT(error_of<std::runtime_error>([&] { moved.grouped_allreduce({}); }), ContainsSubstring("closed"));
  CHECK_THAT(error_of<std::runtime_error>([&] { moved.barrier(); }), ContainsSubstring("closed"));
}

}  // namespace
}  // namespace ddp::horovod
