// Corner cases of what moves tensors between ranks: empty ones, those without a dimension, strides, lazily conjugated
// memory, numbers that are none.
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;

constexpr int kRanks = 3;

class Gather : protected test::EveryWire {
 protected:
  void on_ranks(const std::function<void(const GroupHandle&)>& body) const { run(kRanks, body); }
};

// Rank 0's values for a shape, and the same plus 100 for each further rank.
at::Tensor rank_values(int64_t rank, at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return here(at::arange(c10::multiply_integers(shape), at::kLong)).add(100 * rank).to(dtype).view(shape);
}

at::Tensor of_all_ranks(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < kRanks; ++rank) all.push_back(rank_values(rank, shape, dtype));
  return at::stack(all);
}

TEST_CASE_METHOD(Gather, "Gather: tensors without elements travel, too") {
  on_ranks([](const GroupHandle& group) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0}, {3, 0}, {0, 2}, {2, 0, 4}}) {
      RANK_INFO("shape " << at::IntArrayRef(shape));
      const at::Tensor empty = here(at::zeros(shape));
      std::vector<int64_t> stacked = shape;
      stacked.insert(stacked.begin(), kRanks);
      RANK_CHECK(all_gather(empty, group).sizes() == stacked);
      const at::Tensor gathered = gather(empty, 1, group);
      RANK_CHECK(gathered.defined() == (group.rank() == 1));
      if (group.rank() == 1) RANK_CHECK(gathered.sizes() == stacked);
      at::Tensor target = here(at::zeros(shape));
      scatter(target, std::vector<at::Tensor>(group.rank() == 2 ? kRanks : 0, empty), 2, group);
      RANK_CHECK(target.sizes() == shape);
      RANK_CHECK(all_gather_coalesced({empty, here(at::ones({2}))}, group).at(0).sizes() == stacked);
      all_reduce(target, group);
      reduce(target, 0, group);
      broadcast(target, 0, group);
      broadcast_coalesced({target, here(at::ones({2}))}, 0, group);
      all_reduce_coalesced({target, target}, group);
    }
    RANK_CHECK(all_to_all(here(at::zeros({0, 2})), group).sizes() == at::IntArrayRef({0, 2}));
    RANK_CHECK(all_to_all(here(at::zeros({kRanks, 0})), group).sizes() == at::IntArrayRef({kRanks, 0}));
    const UnevenParts nothing = all_to_all_uneven(here(at::zeros({0, 2})), {0, 0, 0}, group);
    RANK_CHECK(nothing.tensor.sizes() == at::IntArrayRef({0, 2}));
    RANK_CHECK(nothing.counts == std::vector<int64_t>(kRanks, 0));
    for (const at::Tensor& part : all_gather_uneven(here(at::zeros({0, 2})), group)) {
      RANK_CHECK(part.sizes() == at::IntArrayRef({0, 2}));
    }
    RANK_CHECK(reduce_scatter(here(at::zeros({0, 4})), group).sizes() == at::IntArrayRef({0, 4}));
    // The connections are in step after all that.
    RANK_CHECK_THAT(all_gather(rank_values(group.rank(), {2}), group), EqualsTensor(of_all_ranks({2})));
  });
}

TEST_CASE_METHOD(Gather, "Gather: a tensor without dimensions is one row of the result") {
  on_ranks([](const GroupHandle& group) {
    const at::Tensor one = rank_values(group.rank(), {});
    RANK_CHECK_THAT(all_gather(one, group), EqualsTensor(at::tensor({0.0F, 100.0F, 200.0F})));
    RANK_CHECK_THAT(all_gather_coalesced({one}, group).at(0), EqualsTensor(at::tensor({0.0F, 100.0F, 200.0F})));
    for (int root = 0; root < kRanks; ++root) {
      const at::Tensor all = gather(one, root, group);
      if (group.rank() == root) RANK_CHECK_THAT(all, EqualsTensor(at::tensor({0.0F, 100.0F, 200.0F})));
      at::Tensor target = here(at::zeros({}));
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < kRanks; ++rank) parts.push_back(rank_values(rank, {}));
      scatter(target, parts, root, group);
      RANK_CHECK_THAT(target, EqualsTensor(one));
    }
    at::Tensor sum = one.clone();
    all_reduce(sum, group);
    RANK_CHECK_THAT(sum, EqualsTensor(at::full({}, 300.0F)));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { all_gather_uneven(one, group); }),
                    ContainsSubstring("expected 1 to 16 dimensions, got a Float tensor of shape []"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>(
                        [&] { all_gather_uneven(here(at::zeros(std::vector<int64_t>(17, 1))), group); }),
                    ContainsSubstring("expected 1 to 16 dimensions"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { all_to_all(one, group); }), ContainsSubstring("shape []"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { reduce_scatter(one, group); }),
                    ContainsSubstring("shape []"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      all_to_all_uneven(one, {1, 0, 0}, group);
                    }),
                    ContainsSubstring("got (1, 0, 0)"));
  });
}

// A vector with gaps is the one shape whose reshape() to a row is a view of the same memory, with the gaps.
TEST_CASE_METHOD(Gather, "Gather: coalesced lists take what has gaps, alone or with others") {
  on_ranks([](const GroupHandle& group) {
    const std::vector<std::function<at::Tensor(const at::Tensor&)>> views{
        [](const at::Tensor& all) { return all.select(1, 1); }, [](const at::Tensor& all) { return all.select(0, 2); },
        [](const at::Tensor& all) { return all.t(); }, [](const at::Tensor& all) { return all.slice(1, 0, 6, 2); }};
    for (size_t i = 0; i < views.size(); ++i) {
      for (const bool alone : {true, false}) {
        RANK_INFO("view " << i << (alone ? ", alone" : ", with others"));
        at::Tensor memory = rank_values(group.rank(), {4, 6});
        at::Tensor view = views[i](memory);
        std::vector<at::Tensor> list{view};
        if (!alone) list.push_back(here(at::ones({2})));
        at::Tensor expected = of_all_ranks({4, 6}).sum(0);
        const at::Tensor gathered = all_gather_coalesced(list, group).at(0);
        for (int rank = 0; rank < kRanks; ++rank) {
          RANK_CHECK_THAT(gathered.select(0, rank), EqualsTensor(views[i](rank_values(rank, {4, 6})).contiguous()));
        }
        all_reduce_coalesced(list, group);
        RANK_CHECK_THAT(view.contiguous(), EqualsTensor(views[i](expected).contiguous()));
        // What lies in the gaps is left alone.
        at::Tensor around = rank_values(group.rank(), {4, 6});
        views[i](around).copy_(views[i](expected));
        RANK_CHECK_THAT(memory, EqualsTensor(around));
        view.copy_(views[i](rank_values(group.rank(), {4, 6})));
        all_reduce_coalesced_async(list, group, ReduceOp::kMax).wait();
        RANK_CHECK_THAT(view.contiguous(), EqualsTensor(views[i](rank_values(kRanks - 1, {4, 6})).contiguous()));
        view.copy_(views[i](rank_values(group.rank(), {4, 6})));
        broadcast_coalesced(list, 1, group);
        RANK_CHECK_THAT(view.contiguous(), EqualsTensor(views[i](rank_values(1, {4, 6})).contiguous()));
      }
    }
  });
}

TEST_CASE_METHOD(Gather, "Gather: coalesced lists take lazily conjugated numbers, alone or with others") {
  on_ranks([](const GroupHandle& group) {
    const auto of = [](int64_t rank) { return at::complex(rank_values(rank, {3}), rank_values(rank, {3}).add(1)); };
    for (const bool alone : {true, false}) {
      RANK_INFO((alone ? "alone" : "with others"));
      const at::Tensor memory = of(group.rank());
      std::vector<at::Tensor> list{memory.conj()};
      RANK_CHECK(list[0].is_conj());
      if (!alone) list.push_back(here(at::ones({2}, at::kComplexFloat)));
      const at::Tensor gathered = all_gather_coalesced(list, group).at(0);
      for (int rank = 0; rank < kRanks; ++rank) {
        RANK_CHECK_THAT(gathered.select(0, rank), EqualsTensor(of(rank).conj().resolve_conj()));
      }
      all_reduce_coalesced(list, group);
      RANK_CHECK_THAT(memory, EqualsTensor(of(0).add(of(1)).add(of(2))));
    }
  });
}

TEST_CASE_METHOD(Gather, "Gather: broadcast coalesced packs into messages of any size") {
  const int64_t buffer_bytes = GENERATE(1, 8, 100, 1 << 20);
  on_ranks([&](const GroupHandle& group) {
    std::vector<at::Tensor> tensors{rank_values(group.rank(), {5}), rank_values(group.rank(), {2, 3}, at::kLong),
                                    rank_values(group.rank(), {}, at::kHalf),
                                    rank_values(group.rank(), {7}).requires_grad_(), here(at::zeros({0}))};
    broadcast_coalesced(tensors, 2, group, buffer_bytes);
    RANK_CHECK_THAT(tensors[0], EqualsTensor(rank_values(2, {5})));
    RANK_CHECK_THAT(tensors[1], EqualsTensor(rank_values(2, {2, 3}, at::kLong)));
    RANK_CHECK_THAT(tensors[2], EqualsTensor(rank_values(2, {}, at::kHalf)));
    RANK_CHECK_THAT(tensors[3].detach(), EqualsTensor(rank_values(2, {7})));
    RANK_CHECK(tensors[3].is_leaf());
  });
}

TEST_CASE_METHOD(Gather, "Gather: every bit arrives, of NaNs and zeros with a sign as well") {
  on_ranks([](const GroupHandle& group) {
    const std::vector<int64_t> bits{int64_t{0x7ff8000000000123},
                                    int64_t{0x7ff0000000000001},
                                    INT64_MIN,
                                    int64_t{0x7ff0000000000000},
                                    1,
                                    -1 - 0x1234};
    const at::Tensor numbers = here(at::tensor(bits, at::kLong)).add(group.rank()).view(at::kDouble);
    const at::Tensor all = all_gather(numbers, group).view(at::kLong);
    for (int rank = 0; rank < kRanks; ++rank) {
      RANK_CHECK_THAT(all.select(0, rank), EqualsTensor(at::tensor(bits, at::kLong).add(rank)));
    }
    at::Tensor own = numbers.clone();
    broadcast(own, 1, group);
    RANK_CHECK_THAT(own.view(at::kLong), EqualsTensor(at::tensor(bits, at::kLong).add(1)));
    const at::Tensor sent = all_to_all(at::stack({numbers, numbers, numbers}), group).view(at::kLong);
    for (int rank = 0; rank < kRanks; ++rank) {
      RANK_CHECK_THAT(sent.select(0, rank), EqualsTensor(at::tensor(bits, at::kLong).add(rank)));
    }
  });
}

TEST_CASE_METHOD(Gather, "Gather: infinities add up as numbers do") {
  on_ranks([](const GroupHandle& group) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    at::Tensor sums = here(at::tensor({group.rank() == 0 ? kInfinity : 1.0F, group.rank() == 1 ? -kInfinity : kInfinity,
                                       group.rank() == 2 ? std::numeric_limits<float>::quiet_NaN() : 0.0F}));
    all_reduce(sums, group);
    RANK_CHECK(sums[0].item<float>() == kInfinity);
    RANK_CHECK(sums[1].isnan().item<bool>());
    RANK_CHECK(sums[2].isnan().item<bool>());
  });
}

TEST_CASE_METHOD(Gather, "Gather: results are new tensors that record nothing") {
  on_ranks([](const GroupHandle& group) {
    const at::Tensor leaf = rank_values(group.rank(), {3}).requires_grad_();
    const at::Tensor inner = leaf.mul(1);
    for (const at::Tensor& given : {leaf, inner}) {
      at::Tensor all = all_gather(given, group);
      RANK_CHECK_FALSE(all.requires_grad());
      all.fill_(-1);
      at::Tensor sent = all_to_all(given, group);
      RANK_CHECK_FALSE(sent.requires_grad());
      sent.fill_(-1);
      std::vector<at::Tensor> parts = all_gather_uneven(given, group);
      for (at::Tensor& part : parts) {
        RANK_CHECK_FALSE(part.requires_grad());
        part.fill_(-1);
      }
      at::Tensor coalesced = all_gather_coalesced({given}, group).at(0);
      RANK_CHECK_FALSE(coalesced.requires_grad());
      at::Tensor at_root = gather(given, 0, group);
      if (at_root.defined()) RANK_CHECK_FALSE(at_root.requires_grad());
      RANK_CHECK_THAT(given.detach(), EqualsTensor(rank_values(group.rank(), {3})));
    }
  });
}

TEST_CASE_METHOD(Gather, "Gather: scatter reads the parts on the root alone and leaves them as they were") {
  on_ranks([](const GroupHandle& group) {
    for (int root = 0; root < kRanks; ++root) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBool, at::kLong, at::kComplexDouble}) {
        std::vector<at::Tensor> parts;
        for (int rank = 0; rank < kRanks; ++rank) parts.push_back(rank_values(rank, {2, 2}, dtype));
        at::Tensor target = here(at::zeros({2, 2}, dtype));
        const bool is_root = group.rank() == root;
        // Elsewhere they may be anything.
        scatter(target, is_root ? parts : std::vector<at::Tensor>{at::Tensor()}, root, group);
        RANK_CHECK_THAT(target, EqualsTensor(rank_values(group.rank(), {2, 2}, dtype)));
        RANK_CHECK_THAT(parts[1], EqualsTensor(rank_values(1, {2, 2}, dtype)));
      }
    }
  });
}

TEST_CASE_METHOD(Gather, "Gather: wrong parts of a scatter are refused on the root, which may do it again") {
  on_ranks([](const GroupHandle& group) {
    at::Tensor target = here(at::zeros({2}));
    const at::Tensor right = here(at::ones({2}));
    if (group.rank() == 0) {
      const auto why = [&](const std::vector<at::Tensor>& parts) {
        return error_of<std::invalid_argument>([&] { scatter(target, parts, 0, group); });
      };
      RANK_CHECK_THAT(why({}), ContainsSubstring("rank 0 of 3: scatter: expected one part per rank, 3, got 0"));
      RANK_CHECK_THAT(why({right, right}), ContainsSubstring("3, got 2"));
      RANK_CHECK_THAT(why({right, here(at::ones({3})), right}),
                      ContainsSubstring("part 1 is a Float tensor of shape [3]"));
      RANK_CHECK_THAT(why({right, right, here(at::ones({2}, at::kDouble))}),
                      ContainsSubstring("part 2 is a Double tensor"));
      RANK_CHECK_THAT(why({right, at::Tensor(), right}), ContainsSubstring("undefined"));
      RANK_CHECK_THAT(why({right, here(at::ones({4})).slice(0, 0, 4, 2), right}), ContainsSubstring(".contiguous()"));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { scatter(target, {}, kRanks, group); }),
                    ContainsSubstring("root 3 is not a rank: expected 0 to 2"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { gather(target, -1, group); }),
                    ContainsSubstring("root -1 is not a rank"));
    scatter(target, {right, right, right}, 0, group);
    RANK_CHECK_THAT(target, EqualsTensor(right));
  });
}

TEST_CASE_METHOD(Gather, "Gather: lists for all to all need one tensor per rank, of one dtype") {
  on_ranks([](const GroupHandle& group) {
    const at::Tensor two = here(at::ones({2}));
    const auto why = [&](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
      return error_of<std::invalid_argument>([&] { all_to_all(outputs, inputs, group); });
    };
    RANK_CHECK_THAT(why({two, two, two}, {}), ContainsSubstring("the first input is missing"));
    RANK_CHECK_THAT(why({two, two, two}, {at::Tensor(), two, two}), ContainsSubstring("the first input is missing"));
    RANK_CHECK_THAT(why({two, two}, {two, two, two}), ContainsSubstring("3, got 2 outputs"));
    RANK_CHECK_THAT(why({two, two, two}, {two}), ContainsSubstring("3, got 1 inputs"));
    RANK_CHECK_THAT(why({two, two, two.to(at::kLong)}, {two, two, two}), ContainsSubstring("outputs[2] is a Long"));
    RANK_CHECK_THAT(why({two, two, two}, {two, two.to(at::kHalf), two}), ContainsSubstring("inputs[1] is a Half"));
    // Shapes are free: rank r sends r + 1 numbers to every rank.
    std::vector<at::Tensor> outputs{here(at::zeros({1, 1})), here(at::zeros({2})), here(at::zeros({3}))};
    const at::Tensor own = here(at::full({group.rank() + 1}, static_cast<float>(group.rank())));
    all_to_all(outputs, {own, own, own}, group);
    RANK_CHECK_THAT(outputs[0], EqualsTensor(at::zeros({1, 1})));
    RANK_CHECK_THAT(outputs[2], EqualsTensor(at::full({3}, 2.0F)));
  });
}

TEST_CASE_METHOD(Gather, "Gather: uneven parts of random lengths arrive in rank order") {
  on_ranks([](const GroupHandle& group) {
    for (int round = 0; round < 20; ++round) {
      // The same on all ranks, without telling each other.
      const auto rows = [round](int from, int to) { return int64_t{(round * 7 + from * 5 + to * 3 + from * to) % 4}; };
      std::vector<int64_t> counts;
      std::vector<int64_t> expected;
      for (int other = 0; other < kRanks; ++other) {
        counts.push_back(rows(group.rank(), other));
        expected.push_back(rows(other, group.rank()));
      }
      const int64_t total = counts[0] + counts[1] + counts[2];
      const UnevenParts parts = all_to_all_uneven(rank_values(group.rank(), {total, 2}, at::kInt), counts, group);
      RANK_CHECK(parts.counts == expected);
      int64_t begin = 0;
      for (int other = 0; other < kRanks; ++other) {
        int64_t skipped = 0;
        for (int to = 0; to < group.rank(); ++to) skipped += rows(other, to);
        const int64_t sent = rows(other, 0) + rows(other, 1) + rows(other, 2);
        const at::Tensor from =
            rank_values(other, {sent, 2}, at::kInt).slice(0, skipped, skipped + rows(other, group.rank()));
        RANK_CHECK_THAT(parts.tensor.slice(0, begin, begin + from.size(0)), EqualsTensor(from));
        begin += from.size(0);
      }
      const std::vector<at::Tensor> all = all_gather_uneven(rank_values(group.rank(), {rows(group.rank(), 0)}), group);
      for (int other = 0; other < kRanks; ++other) {
        RANK_CHECK_THAT(all[static_cast<size_t>(other)], EqualsTensor(rank_values(other, {rows(other, 0)})));
      }
    }
  });
}

}  // namespace
}  // namespace ddp
