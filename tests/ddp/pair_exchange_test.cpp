// Small buckets of two ranks go by one message each way instead of gloo's ring: the bits are gloo's, whatever they are,
// and what goes wrong leaves the group in order.
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <limits>
#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::exchanges_directly;
using test::expect_equal;
using test::here;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::Wire;

constexpr int64_t kElements = 4096;

// Its gradient is its input.
struct ScaleImpl : torch::nn::Module {
  explicit ScaleImpl(torch::Dtype dtype)
      : weight(register_parameter("weight", torch::ones({kElements}, torch::TensorOptions().dtype(dtype)))) {}
  torch::Tensor forward(const torch::Tensor& x) { return weight * x; }
  torch::Tensor weight;
};
TORCH_MODULE(Scale);

// Every 16-bit pattern that is a number, each rank in an order of its own; wider types get theirs from a generator.
torch::Tensor patterns(torch::Dtype dtype, int round, int rank) {
  if (dtype == torch::kFloat || dtype == torch::kDouble) return numbers({kElements}, 2 * round + rank).to(dtype);
  const int64_t step = rank == 0 ? 1 : 40503;  // odd: all patterns are met in 16 rounds
  const torch::Tensor bits = (here(torch::arange(kElements, torch::kLong)) + kElements * round) * step;
  const torch::Tensor values = bits.bitwise_and(0xFFFF).to(torch::kInt).to(torch::kShort).view(dtype).clone();
  return values.masked_fill(values.isnan(), 1);
}

torch::Tensor bits_of(const torch::Tensor& tensor) {
  return tensor.contiguous().view(tensor.element_size() == 2   ? torch::kShort
                                  : tensor.element_size() == 4 ? torch::kInt
                                                               : torch::kLong);
}

TEST_CASE("PairExchange: gives the bits of gloos ring for every dtype") {
  run_ranks(2, [](const GroupHandle& group) {
    RANK_REQUIRE(exchanges_directly(group));
    for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
      Scale net = test::placed(Scale(dtype));
      DistributedDataParallel<Scale> model(net, group);
      for (int round = 0; round < 16; ++round) {
        model->zero_grad();
        const torch::Tensor x = patterns(dtype, round, group.rank());
        model(x).backward(here(torch::ones({kElements}, torch::TensorOptions().dtype(dtype))));
        const torch::Tensor expected = x / 2;
        all_reduce(expected, group);
        const torch::Tensor gradient = net->weight.grad();
        expect_equal(gradient.isnan(), expected.isnan());  // infinity minus infinity
        const torch::Tensor same = torch::logical_or(bits_of(gradient) == bits_of(expected), expected.isnan());
        RANK_INFO("dtype " << dtype << ", round " << round);
        RANK_CHECK(same.all().item<bool>());
      }
    }
  });
}

TEST_CASE("PairExchange: is for two ranks with plain gloo") {
  run_ranks(3, [](const GroupHandle& group) { RANK_CHECK_FALSE(exchanges_directly(group)); });
  run_ranks(2, [](const GroupHandle& group) { RANK_CHECK_FALSE(exchanges_directly(group)); }, {.wire = Wire::kLate});
}

// The step of the other rank is whole, and both can go on to use the group.
TEST_CASE("PairExchange: a backward that fails after its gradients were sent leaves the group in order") {
  run_ranks(2, [](const GroupHandle& group) {
    Scale net = test::placed(Scale(torch::kFloat));
    DistributedDataParallel<Scale> model(net, group);
    const torch::Tensor leaf = here(torch::ones({kElements})).requires_grad_();
    const torch::Tensor x = leaf * static_cast<float>(1 + group.rank());
    x.register_hook([&](const torch::Tensor&) {  // behind the parameter's own gradient
      if (group.rank() == 1) throw std::runtime_error("a hook of the program's");
    });
    const std::string message = message_of([&] { model(x).sum().backward(); });
    if (group.rank() == 1) {
      RANK_CHECK_THAT(message, ContainsSubstring("a hook of the program's"));
    } else {
      RANK_CHECK(message == "");
      expect_equal(net->weight.grad(), here(torch::full({kElements}, 1.5)));
    }
    const torch::Tensor sum = here(torch::ones({1}));
    all_reduce(sum, group);
    RANK_CHECK(sum.item<float>() == 2);
  });
}

// Which model's gradients come first may differ between ranks as long as each has a group of its own.
TEST_CASE("PairExchange: models on groups of their own may finish in any order") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto other = new_group(group, {0, 1});
    RANK_REQUIRE(exchanges_directly(*other));
    Scale first_net(torch::kFloat);
    Scale second_net(torch::kFloat);
    DistributedDataParallel<Scale> first(first_net, group);
    DistributedDataParallel<Scale> second(second_net, *other);
    const torch::Tensor x = here(torch::full({kElements}, static_cast<float>(group.rank())));
    const auto forward = [&] { return group.rank() == 0 ? second(first(x)) : first(second(x)); };
    forward().sum().backward();
    expect_equal(first_net->weight.grad(), here(torch::full({kElements}, 0.5)));
    expect_equal(second_net->weight.grad(), here(torch::full({kElements}, 0.5)));
  });
}

TEST_CASE("PairExchange: messages of users may not have its tag") {
  run_ranks(2, [](const GroupHandle& group) {
    const int tag = std::numeric_limits<int>::max();
    RANK_CHECK_THAT(message_of([&] { recv(here(torch::ones({1})), 1 - group.rank(), group, tag); }),
                    ContainsSubstring("tag 2147483647 is reserved for the library"));
  });
}

}  // namespace
}  // namespace ddp
