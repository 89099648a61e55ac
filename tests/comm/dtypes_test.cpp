// Which dtypes operations take: all that the backend has give the numbers of a model in doubles, the others are
// refused by name before anything is sent.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/gradient_bucket.h>

#include "comm/backends/backend_types.h"
#include "comm/backends/gloo.h"
#include "tests/comm/counting_backend.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using test::ContainsAll;
using test::EqualsTensor;
using test::error_of;
using test::here;
using Tensors = std::vector<at::Tensor>;

constexpr at::ScalarType kTaken[] = {at::kFloat, at::kDouble,      at::kHalf,         at::kBFloat16,
                                     at::kChar,  at::kByte,        at::kInt,          at::kLong,
                                     at::kBool,  at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};
constexpr at::ScalarType kLacked[] = {at::kShort,  at::kUInt16,        at::kUInt32,
                                      at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2};

// Four rows for each rank of a group of `size`; small numbers, other ones on each rank.
at::Tensor numbers(int rank, int size, at::ScalarType dtype) {
  const at::Tensor whole = here(at::arange(8L * size, at::kLong)).mul(3 + rank).add(rank).remainder(4);
  return whole.view({4L * size, 2}).to(dtype);
}

// `what` of the same numbers in doubles (ones and zeros for bool), with what the ranks have as rows.
at::Tensor model_of(const std::function<at::Tensor(const at::Tensor& rows)>& what, int size, at::ScalarType dtype) {
  Tensors rows;
  for (int rank = 0; rank < size; ++rank) rows.push_back(numbers(rank, size, dtype));
  const bool is_complex = at::isComplexType(dtype);
  return what(at::stack(rows).to(is_complex ? at::kComplexDouble : at::kDouble)).to(dtype);
}

class Dtypes : protected test::EveryWireAndSize {
 protected:
  // `call` with each dtype that is taken, on each rank, gives what `model` makes of the rows of all ranks.
  void holds(const std::function<at::Tensor(const at::Tensor&, const GroupHandle&)>& call,
             const std::function<at::Tensor(const at::Tensor& rows, int rank, int size)>& model) const {
    run([&](const GroupHandle& group) {
      for (const at::ScalarType dtype : kTaken) {
        RANK_INFO(c10::toString(dtype));
        const at::Tensor result = call(numbers(group.rank(), group.size(), dtype), group);
        const at::Tensor expected = model_of(
            [&](const at::Tensor& rows) { return model(rows, group.rank(), group.size()); }, group.size(), dtype);
        RANK_CHECK(result.scalar_type() == dtype);
        RANK_CHECK(result.sizes() == expected.sizes());
        // Not all operators know ComplexHalf.
        RANK_CHECK(at::equal(result.to(at::kComplexDouble), expected.to(at::kComplexDouble)));
      }
    });
  }
};

TEST_CASE_METHOD(Dtypes, "Dtypes: sums of every dtype are the model's") {
  const auto sum = [](const at::Tensor& rows, int /*rank*/, int /*size*/) { return rows.sum(0); };
  holds(
      [](at::Tensor tensor, const GroupHandle& group) {
        all_reduce(tensor, group);
        return tensor;
      },
      sum);
  holds(
      [](const at::Tensor& tensor, const GroupHandle& group) {
        all_reduce_coalesced({tensor.narrow(0, 0, 1), tensor.narrow(0, 1, tensor.size(0) - 1)}, group);
        return tensor;
      },
      sum);
  holds([](const at::Tensor& tensor, const GroupHandle& group) { return reduce_scatter(tensor, group); },
        [](const at::Tensor& rows, int rank, int /*size*/) { return rows.sum(0).narrow(0, 4L * rank, 4); });
  holds(
      [](at::Tensor tensor, const GroupHandle& group) {
        const at::Tensor own = tensor.clone();
        reduce(tensor, 0, group);
        return group.rank() == 0 ? tensor : own;
      },
      [](const at::Tensor& rows, int rank, int /*size*/) { return rank == 0 ? rows.sum(0) : rows[rank]; });
}

TEST_CASE_METHOD(Dtypes, "Dtypes: what is moved arrives as it was, of every dtype") {
  holds(
      [](at::Tensor tensor, const GroupHandle& group) {
        broadcast(tensor, group.size() - 1, group);
        return tensor;
      },
      [](const at::Tensor& rows, int /*rank*/, int size) { return rows[size - 1]; });
  holds(
      [](const at::Tensor& tensor, const GroupHandle& group) {
        broadcast_coalesced({tensor.t(), here(at::ones({1}))}, 0, group);
        return tensor;
      },
      [](const at::Tensor& rows, int /*rank*/, int /*size*/) { return rows[0]; });
  holds([](const at::Tensor& tensor, const GroupHandle& group) { return all_gather(tensor, group); },
        [](const at::Tensor& rows, int /*rank*/, int /*size*/) { return rows; });
  holds(
      [](const at::Tensor& tensor, const GroupHandle& group) {
        // Rank r has r rows more than rank 0.
        return at::cat(all_gather_uneven(tensor.narrow(0, 0, group.rank() + 1), group));
      },
      [](const at::Tensor& rows, int /*rank*/, int size) {
        Tensors parts;
        for (int rank = 0; rank < size; ++rank) parts.push_back(rows[rank].narrow(0, 0, rank + 1));
        return at::cat(parts);
      });
  holds([](const at::Tensor& tensor, const GroupHandle& group) { return all_gather_coalesced({tensor}, group).at(0); },
        [](const at::Tensor& rows, int /*rank*/, int /*size*/) { return rows; });
  holds(
      [](const at::Tensor& tensor, const GroupHandle& group) {
        const at::Tensor all = gather(tensor, 0, group);
        return all.defined() ? all : tensor;
      },
      [](const at::Tensor& rows, int rank, int /*size*/) { return rank == 0 ? rows : rows[rank]; });
  holds(
      [](const at::Tensor& tensor, const GroupHandle& group) {
        const at::Tensor part = at::zeros_like(tensor.narrow(0, 0, 4));
        scatter(part, tensor.split(4), 0, group);
        return part;
      },
      [](const at::Tensor& rows, int rank, int /*size*/) { return rows[0].narrow(0, 4L * rank, 4); });
  holds([](const at::Tensor& tensor, const GroupHandle& group) { return all_to_all(tensor, group); },
        [](const at::Tensor& rows, int rank, int /*size*/) {
          return rows.narrow(1, 4L * rank, 4).reshape({-1, 2});
        });
}

// Each would send the tensor; the ranks call them in this order.
struct TypedOperation {
  const char* name;
  std::function<void(const at::Tensor& tensor, const GroupHandle& group)> run;
};

const std::vector<TypedOperation>& typed_operations() {
  static const std::vector<TypedOperation> all{
      {"all_reduce", [](auto& t, auto& g) { all_reduce(t, g); }},
      {"all_reduce", [](auto& t, auto& g) { all_reduce_async(t, g, ReduceOp::kMax).wait(); }},
      {"all_reduce_coalesced",
       [](auto& t, auto& g) {
         all_reduce_coalesced({here(at::ones({2})), t}, g);
       }},
      {"all_reduce", [](auto& t, auto& g) { all_reduce_future(t, g)->waitAndThrow(); }},
      {"reduce", [](auto& t, auto& g) { reduce(t, 0, g); }},
      {"reduce_scatter", [](auto& t, auto& g) { reduce_scatter(t, g); }},
      {"broadcast", [](auto& t, auto& g) { broadcast(t, 0, g); }},
      {"broadcast_coalesced",
       [](auto& t, auto& g) {
         broadcast_coalesced({here(at::ones({2})), t}, 0, g);
       }},
      {"all_gather", [](auto& t, auto& g) { all_gather(t, g); }},
      {"all_gather_uneven", [](auto& t, auto& g) { all_gather_uneven(t, g); }},
      {"all_gather_coalesced",
       [](auto& t, auto& g) {
         all_gather_coalesced({here(at::ones({2})), t}, g);
       }},
      {"gather", [](auto& t, auto& g) { gather(t, 0, g); }},
      {"scatter", [](auto& t, auto& g) { scatter(t, Tensors(static_cast<size_t>(g.size()), t), 0, g); }},
      {"all_to_all", [](auto& t, auto& g) { all_to_all(t, g); }},
      {"all_to_all_uneven",
       [](auto& t, auto& g) {
         all_to_all_uneven(t, std::vector<int64_t>(static_cast<size_t>(g.size()), t.size(0) / g.size()), g);
       }},
  };
  return all;
}

TEST_CASE_METHOD(Dtypes, "Dtypes: what the backend lacks is refused by every collective, with what it has") {
  if (size() == 1) return;  // its backend sends nothing
  run([](const GroupHandle& group) {
    const std::string who = "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ": ";
    for (const at::ScalarType dtype : kLacked) {
      const at::Tensor tensor = here(at::empty({4L * group.size(), 2}, at::TensorOptions(dtype)));
      const std::string name = c10::toString(dtype);
      for (const TypedOperation& operation : typed_operations()) {
        RANK_INFO(operation.name << " of " << name);
        RANK_CHECK_THAT(
            error_of<std::invalid_argument>([&] { operation.run(tensor, group); }),
            ContainsAll({who + operation.name + ": ", "'s collectives do not support " + name + ", got a " + name,
                         "convert it to one of Float, Double, Half, BFloat16, Char, Byte, Bool, Int, Long "
                         "or a complex dtype"}));
      }
    }
    // Nothing was sent, and nobody counts as failed.
    const at::Tensor sum = here(at::ones({2}));
    all_reduce(sum, group);
    RANK_CHECK_THAT(sum, EqualsTensor(at::full({2}, static_cast<float>(group.size()))));
  });
}

TEST_CASE_METHOD(Dtypes, "Dtypes: one rank alone may be refused and go on with what the others have") {
  run([](const GroupHandle& group) {
    at::Tensor tensor = here(at::ones({2}, group.rank() == 0 && group.size() > 1 ? at::kShort : at::kInt));
    if (group.rank() == 0 && group.size() > 1) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { all_reduce(tensor, group); }),
                      ContainsAll({"rank 0 of ", "do not support Short"}));
      tensor = tensor.to(at::kInt);
    }
    all_reduce(tensor, group);
    RANK_CHECK_THAT(tensor, EqualsTensor(at::full({2}, group.size(), at::kInt)));
  });
}

TEST_CASE_METHOD(Dtypes, "Dtypes: the bytes of any dtype may be moved") {
  run([](const GroupHandle& group) {
    for (const at::ScalarType dtype : kLacked) {
      RANK_INFO(c10::toString(dtype));
      const at::Tensor tensor = here(at::full({3}, group.rank() + 1, at::kFloat)).to(dtype);
      broadcast(tensor.view(at::kByte), 0, group);
      RANK_CHECK_THAT(tensor.to(at::kFloat), EqualsTensor(at::ones({3})));
    }
  });
}

TEST_CASE_METHOD(Dtypes, "Dtypes: messages between two ranks have any dtype") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    std::vector<at::ScalarType> dtypes(std::begin(kLacked), std::end(kLacked));
    dtypes.insert(dtypes.end(), std::begin(kTaken), std::end(kTaken));
    for (const at::ScalarType dtype : dtypes) {
      RANK_INFO(c10::toString(dtype));
      const at::Tensor sent = here(at::full({3}, group.rank() % 2, at::kFloat)).to(dtype);
      const at::Tensor received = at::empty_like(sent);
      batch_send_recv({send_to(next, sent), receive_from(before, received)}, group);
      RANK_CHECK_THAT(received.to(at::kComplexFloat).abs(), EqualsTensor(at::full({3}, before % 2, at::kFloat)));
    }
  });
}

TEST_CASE("Dtypes: quantized tensors are refused, which no backend knows") {
  test::run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor tensor = at::quantize_per_tensor(here(at::ones({4, 2})), 0.5, 0, at::kQInt8);
    const auto says_so = ContainsAll({"rank " + std::to_string(group.rank()) + " of 2: ",
                                      "got a quantized one, a QInt8 tensor of shape [4, 2] on cpu: pass .int_repr()"});
    for (const TypedOperation& operation : typed_operations()) {
      if (std::string(operation.name) == "all_reduce") continue;
      RANK_INFO(operation.name);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { operation.run(tensor, group); }), says_so);
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { all_reduce(tensor, group); }), says_so);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { send(tensor, 1 - group.rank(), group); }), says_so);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { recv(tensor, 1 - group.rank(), group); }), says_so);
    barrier(group);
  });
}

TEST_CASE("Dtypes: a single process, which sends nothing, takes all") {
  ProcessGroup group = init_process_group({.rank_info = RankInfo{}});
  for (const at::ScalarType dtype : kLacked) {
    INFO(c10::toString(dtype));
    for (const TypedOperation& operation : typed_operations())
      CHECK_NOTHROW(operation.run(here(at::empty({4, 2}, dtype)), group));
  }
}

TEST_CASE("Dtypes: the list of gloo's is what gloo itself takes") {
  // Gloo behind a backend without a list.
  detail::register_backend(test::counting_backend("unlisted", std::make_shared<std::atomic<int>>(0)));
  ProcessGroup group = init_process_group({.backend = "unlisted", .rank_info = RankInfo{}});
  std::vector<std::string> taken;
  for (const at::ScalarType dtype : kTaken) {
    INFO(c10::toString(dtype));
    CHECK_NOTHROW(broadcast(here(at::empty({2}, dtype)), 0, group));
    if (!at::isComplexType(dtype)) taken.emplace_back(c10::toString(dtype));
  }
  CHECK_THAT(detail::gloo_dtypes(), Catch::Matchers::UnorderedRangeEquals(taken));
  for (const at::ScalarType dtype : kLacked) {
    INFO(c10::toString(dtype));
    CHECK_THAT(error_of<std::runtime_error>([&] { broadcast(here(at::empty({2}, dtype)), 0, group); }),
               Catch::Matchers::ContainsSubstring("Invalid scalar type"));
  }
}

}  // namespace
}  // namespace ddp
