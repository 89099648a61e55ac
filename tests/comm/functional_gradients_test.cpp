// What functional_test.py cannot compare with PyTorch: errors, hangs, and rules that are ours.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/comm/functional.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::here;
using test::run_ranks;

at::Tensor input_of(const GroupHandle& group, std::vector<int64_t> shape) {
  const at::Tensor values = at::arange(1, 1 + c10::multiply_integers(shape), at::kFloat).view(shape);
  return here(values * static_cast<float>(group.rank() + 1)).requires_grad_();
}

at::Tensor gradient_of(const at::Tensor& loss, const at::Tensor& input) {
  return torch::autograd::grad({loss}, {input}).front();
}

bool is_all(const at::Tensor& tensor, double value) {
  return tensor.cpu().eq(value).all().item<bool>();
}

class Gradients : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(Gradients, "functional: the gradient of an average is the average of the gradients") {
  run([](const GroupHandle& group) {
    const double mean_rank = (group.size() + 1) / 2.0;
    const at::Tensor input = input_of(group, {3});
    const at::Tensor mean = functional::all_reduce(input, group, ReduceOp::kAvg);
    RANK_CHECK(at::allclose(mean.detach().cpu(), at::arange(1, 4, at::kFloat) * mean_rank));
    RANK_CHECK(is_all(input.detach().cpu() / at::arange(1, 4, at::kFloat), group.rank() + 1));
    RANK_CHECK(at::allclose(gradient_of((mean * (group.rank() + 1)).sum(), input).cpu(), at::full({3}, mean_rank)));
  });
}

TEST_CASE_METHOD(Gradients, "functional: the gradient of an averaging reduce_scatter is divided by the ranks") {
  run([](const GroupHandle& group) {
    const at::Tensor input = input_of(group, {2 * group.size(), 2});
    const at::Tensor part = functional::reduce_scatter(input, group, ReduceOp::kAvg);
    const at::Tensor gradient = gradient_of((part * (group.rank() + 1)).sum(), input).cpu();
    for (int rank = 0; rank < group.size(); ++rank) {
      const at::Tensor rows = gradient.narrow(0, 2 * rank, 2);
      RANK_CHECK(at::allclose(rows, at::full({2, 2}, (rank + 1.0) / group.size())));
    }
  });
}

TEST_CASE_METHOD(Gradients, "functional: errors of lists name them") {
  run([](const GroupHandle& group) {
    const at::Tensor whole = here(at::ones({group.size()}, at::kLong));
    RANK_CHECK_THAT(
        error_of<std::invalid_argument>([&] { functional::reduce_scatter_coalesced({whole}, group, ReduceOp::kAvg); }),
        ContainsSubstring("reduce_scatter_coalesced: the average needs a floating-point dtype"));
  });
}

TEST_CASE_METHOD(Gradients, "functional: lists are gathered and reduced as their tensors are, whatever their dtypes") {
  run([](const GroupHandle& group) {
    const at::Tensor first = input_of(group, {2 * group.size(), 2});
    const at::Tensor second = input_of(group, {group.size()});
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // of one dtype, and of two
      const std::vector<at::Tensor> inputs{first, second.to(dtype)};
      const auto gathered = functional::all_gather_coalesced(inputs, group);
      const auto reduced = functional::reduce_scatter_coalesced(inputs, group, ReduceOp::kAvg);
      for (size_t i = 0; i < inputs.size(); ++i) {
        RANK_CHECK(at::equal(gathered[i], functional::all_gather(inputs[i], group)));
        RANK_CHECK(at::equal(reduced[i], functional::reduce_scatter(inputs[i], group, ReduceOp::kAvg)));
      }
      const at::Tensor weighted = (gathered[1].sum() + reduced[1].sum()) * (group.rank() + 1);
      const double ranks_sum = group.size() * (group.size() + 1) / 2.0;
      const at::Tensor gradient = gradient_of(weighted, second).cpu();
      for (int rank = 0; rank < group.size(); ++rank) {
        RANK_CHECK(at::allclose(gradient[rank], at::full({}, ranks_sum + (rank + 1.0) / group.size())));
      }
    }
  });
}

TEST_CASE_METHOD(Gradients, "functional: a gradient of an extremum goes to all places that have it, in equal parts") {
  run([](const GroupHandle& group) {
    // Only rank 0 has the largest first number, all ranks have the second, and on rank 0 the third is NaN.
    const bool is_first = group.rank() == 0;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor input = here(at::tensor({is_first ? 2.0F : 1.0F, 3.0F, is_first ? nan : 1.0F})).requires_grad_();
    for (const bool coalesced : {false, true}) {
      const at::Tensor largest = coalesced ? functional::all_reduce_coalesced({input}, group, ReduceOp::kMax).front()
                                           : functional::all_reduce(input, group, ReduceOp::kMax);
      const at::Tensor weights = here(at::tensor({1.0F, 2.0F, 0.0F}));
      const at::Tensor gradient = gradient_of((largest * weights).narrow(0, 0, 2).sum(), input).cpu();
      const auto ranks = static_cast<float>(group.size());
      RANK_CHECK(at::equal(gradient.narrow(0, 0, 2), at::tensor({is_first ? ranks : 0.0F, 2.0F})));
    }
    // In one message with others, of which one has no gradient.
    const at::Tensor other = input_of(group, {2});
    const auto smallest = functional::all_reduce_coalesced({other, input.detach(), input}, group, ReduceOp::kMin);
    const at::Tensor of_other = gradient_of((smallest[0] + smallest[2][1]).sum(), other).cpu();
    RANK_CHECK(is_all(of_other, is_first ? group.size() : 0));
  });
}

TEST_CASE_METHOD(Gradients, "functional: roots and the other ranks") {
  run([](const GroupHandle& group) {
    const int root = group.size() - 1;
    const bool is_root = group.rank() == root;
    const float ranks_sum = static_cast<float>(group.size() * (group.size() + 1)) / 2;
    const float weight = static_cast<float>(group.rank() + 1);
    const at::Tensor input = input_of(group, {2 * group.size()});

    const at::Tensor sent = functional::broadcast(input, root, group);
    RANK_CHECK(sent[0].item<float>() == static_cast<float>(group.size()));
    RANK_CHECK(is_all(gradient_of((sent * weight).sum(), input), is_root ? ranks_sum : 0));

    const at::Tensor sum = functional::reduce(input, root, group);
    RANK_CHECK(sum[0].item<float>() == (is_root ? ranks_sum : 0));
    RANK_CHECK(is_all(gradient_of((sum * weight).sum(), input), group.size()));
    const at::Tensor mean = functional::reduce(input, root, group, ReduceOp::kAvg);
    RANK_CHECK(is_all(gradient_of((mean * weight).sum(), input), 1));

    const at::Tensor gathered = functional::gather(input, root, group);
    RANK_CHECK(gathered.sizes().vec() == std::vector<int64_t>{2 * group.size() * group.size()});
    if (!is_root) RANK_CHECK(is_all(gathered.detach(), 0));
    RANK_CHECK(is_all(gradient_of((gathered * weight).sum(), input), group.size()));

    const at::Tensor part = functional::scatter(input, root, group);
    RANK_CHECK(part[0].item<float>() == static_cast<float>((2 * group.rank() + 1) * group.size()));
    const at::Tensor of_parts = gradient_of((part * weight).sum(), input).cpu();
    if (!is_root) RANK_CHECK(is_all(of_parts, 0));
    if (is_root) RANK_CHECK(of_parts[of_parts.numel() - 1].item<float>() == weight);
  });
}

TEST_CASE_METHOD(Gradients, "functional: gradients of gradients") {
  run([](const GroupHandle& group) {
    const at::Tensor input = input_of(group, {group.size()});
    const at::Tensor gathered = functional::all_gather(input, group);
    const at::Tensor cubes = (gathered * gathered * gathered).sum() / group.size();
    const at::Tensor first = torch::autograd::grad({cubes}, {input}, {}, std::nullopt, /*create_graph=*/true).front();
    RANK_CHECK(at::allclose(first.detach(), input.detach() * input.detach() * 3));
    // Of the sum of this rank's first gradients: those of all ranks meet in its collective's backward.
    RANK_CHECK(at::allclose(gradient_of(first.sum(), input), input.detach() * 6));
  });
}

TEST_CASE("functional: nothing is recorded without gradients") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor input = input_of(group, {2});
    RANK_CHECK(!functional::all_reduce(input.detach(), group).requires_grad());
    RANK_CHECK(functional::all_reduce(input, group).requires_grad());
    const at::NoGradGuard no_grad;
    RANK_CHECK(!functional::all_reduce(input, group).requires_grad());
    RANK_CHECK(!functional::all_gather_async(input, group).wait().requires_grad());
  });
}

TEST_CASE("functional: operations without a gradient are refused in backward by name") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor input = input_of(group, {2});
    const at::Tensor product = functional::all_reduce(input, group, ReduceOp::kProduct);
    RANK_CHECK_THAT(
        error_of<std::runtime_error>([&] { gradient_of(product.sum(), input); }),
        ContainsSubstring("all_reduce (product) is not differentiable, but a backward needs its gradient (gradient of "
                          "number 0)"));
    const at::Tensor least = functional::reduce_scatter(input, group, ReduceOp::kMin);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { gradient_of(least.sum(), input); }),
                    ContainsSubstring("reduce_scatter (min) is not differentiable"));
    const at::Tensor largest = functional::reduce(input, 0, group, ReduceOp::kMax);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { gradient_of(largest.sum(), input); }),
                    ContainsSubstring("reduce (max) is not differentiable"));
    const at::Tensor products = functional::all_reduce_coalesced({input, input}, group, ReduceOp::kProduct).back();
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { gradient_of(products.sum(), input); }),
                    ContainsSubstring("all_reduce_coalesced (product) is not differentiable"));
    const at::Tensor most = functional::reduce_scatter_coalesced({input, input}, group, ReduceOp::kMax).front();
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { gradient_of(most.sum(), input); }),
                    ContainsSubstring("reduce_scatter_coalesced (max) is not differentiable"));
    RANK_CHECK(functional::all_reduce(input, group)[0].item<float>() == 3);
  });
}

TEST_CASE("functional: the error of a list's operation has its name, in forward and backward") {
  const std::vector<std::pair<std::string, std::function<void(const at::Tensor&, const GroupHandle&)>>> calls{
      {"all_reduce_coalesced (number 0)",
       [](const at::Tensor& input, const GroupHandle& group) { functional::all_reduce_coalesced({input}, group); }},
      {"all_gather_coalesced (number 0)",
       [](const at::Tensor& input, const GroupHandle& group) { functional::all_gather_coalesced({input}, group); }},
      {"reduce_scatter_coalesced (number 0)",
       [](const at::Tensor& input, const GroupHandle& group) { functional::reduce_scatter_coalesced({input}, group); }},
      {"all_reduce_coalesced (number 0)",
       [](const at::Tensor& input, const GroupHandle& group) { all_reduce_coalesced({input.detach()}, group); }},
      {"all_gather_coalesced (number 0)",
       [](const at::Tensor& input, const GroupHandle& group) { all_gather_coalesced({input.detach()}, group); }},
      {"all_reduce_coalesced (number 1, gradient of number 0)", [](const at::Tensor& input, const GroupHandle& group) {
         gradient_of(functional::all_reduce_coalesced({input}, group).front().sum(), input);
       }}};
  for (const auto& [name, call] : calls) {
    const auto without_rank_1 = [&name = name, &call = call](const GroupHandle& group) {
      const at::Tensor input = input_of(group, {2});
      if (group.rank() == 1) {
        if (name.ends_with("gradient of number 0)")) functional::all_reduce_coalesced({input}, group);
        return;
      }
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { call(input, group); }), ContainsSubstring(name));
    };
    run_ranks(2, without_rank_1, {.timeout = std::chrono::seconds(2)});
  }
}

TEST_CASE("functional: a rank that does not use an output is named, and which output") {
  run_ranks(3,
            [](const GroupHandle& group) {
              const at::Tensor input = input_of(group, {2});
              static_cast<void>(functional::all_reduce(input, group));  // number 0, which nobody uses
              const at::Tensor sum = functional::all_reduce(input, group);
              if (group.rank() == 1) {
                gradient_of(input.sum(), input);
                return;
              }
              RANK_CHECK_THAT(
                  error_of<std::runtime_error>([&] { gradient_of(sum.sum(), input); }),
                  // Either the closed connection or the expired time limit is noticed first.
                  ContainsSubstring("all_reduce") && ContainsSubstring("number 2") && ContainsSubstring("rank 1"));
            },
            {.timeout = std::chrono::seconds(3)});
}

TEST_CASE("functional: a rank whose backward has another collective is named with both") {
  run_ranks(3,
            [](const GroupHandle& group) {
              const at::Tensor input = input_of(group, {3});
              const at::Tensor first = functional::all_reduce(input, group);
              const at::Tensor second = functional::all_reduce(input, group);
              const at::Tensor used = group.rank() == 1 ? second : first;
              const std::string text = error_of<std::runtime_error>([&] {
                gradient_of(used.sum(), input);
                // Sums of equal sizes do not fail by themselves: the next one that waits does.
                gradient_of((group.rank() == 1 ? first : functional::broadcast(input, 0, group)).sum(), input);
              });
              RANK_CHECK_THAT(text, ContainsSubstring(
                                        "the ranks disagree on call number 2: rank 1 called all_reduce (sum, gradient "
                                        "of number 1) of Float [3], the others all_reduce (sum, gradient of "
                                        "number 0) of Float [3]"));
            },
            {.timeout = std::chrono::seconds(3)});
}

TEST_CASE("functional: sums of equal size for different gradients are not taken for one another") {
  run_ranks(2,
            [](const GroupHandle& group) {
              const at::Tensor input = input_of(group, {3});
              const at::Tensor first = functional::all_reduce(input, group);
              const at::Tensor second = functional::all_reduce(input, group);
              RANK_CHECK_THAT(
                  error_of<std::runtime_error>([&] { gradient_of((group.rank() == 0 ? first : second).sum(), input); }),
                  ContainsSubstring("for a gradient through collective"));
            },
            {.wire = test::Wire::kShm});
  run_ranks(2,
            [](const GroupHandle& group) {
              const at::Tensor input = input_of(group, {3});
              const at::Tensor sum = functional::all_reduce(input, group);
              RANK_CHECK_THAT(error_of<std::runtime_error>([&] {
                                // As a bucket of gradients.
                                if (group.rank() == 0) return all_reduce(here(at::ones({3})), group);
                                gradient_of(sum.sum(), input);
                              }),
                              ContainsSubstring("all ranks must call the same"));
            },
            {.wire = test::Wire::kShm});
}

TEST_CASE("functional: on gloo ranks wait where they would add up different gradients, and the error has both") {
  // Of four ranks two are on each host, which agree.
  for (const auto& [wire, size] :
       {std::pair(test::Wire::kGloo, 2), std::pair(test::Wire::kGloo, 3), std::pair(test::Wire::kHosts, 4)}) {
    run_ranks(
        size,
        [](const GroupHandle& group) {
          const at::Tensor input = input_of(group, {3});
          const at::Tensor first = functional::all_reduce(input, group);
          const at::Tensor second = functional::all_reduce(input, group);
          RANK_CHECK(
              is_all(torch::autograd::grad({(first + second).sum()}, {input}, {}, true).front(), 2 * group.size()));
          RANK_CHECK_THAT(
              error_of<std::runtime_error>([&] { gradient_of((group.rank() % 2 == 0 ? first : second).sum(), input); }),
              ContainsSubstring("the ranks disagree on call number 4") && ContainsSubstring("gradient of number 0") &&
                  ContainsSubstring("gradient of number 1"));
        },
        {.wire = wire, .timeout = std::chrono::seconds(2)});
  }
}

TEST_CASE("functional: split sizes on which two ranks disagree are refused in shared memory") {
  run_ranks(3,
            [](const GroupHandle& group) {
              const at::Tensor input = here(at::ones({3}));
              const std::vector<int64_t> sent =
                  group.rank() == 1 ? std::vector<int64_t>{2, 1, 0} : std::vector<int64_t>{1, 1, 1};
              RANK_CHECK_THAT(error_of<std::runtime_error>([&] {
                                functional::all_to_all(input, {1, 1, 1}, sent, group);
                              }),
                              ContainsSubstring("rank 1 sent"));
            },
            {.wire = test::Wire::kShm});
}

TEST_CASE("functional: wrong arguments are refused before anything is sent") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor input = input_of(group, {3, 2});
    const auto refused = [](const auto& call) { return error_of<std::invalid_argument>(call); };
    RANK_CHECK_THAT(refused([&] { functional::reduce_scatter(input, group); }),
                    ContainsSubstring("expected a dimension 0 whose size is a multiple of the group's size 2"));
    RANK_CHECK_THAT(refused([&] { functional::all_gather(input, group, 2); }),
                    ContainsSubstring("dimension 2 is not one of a Float tensor of shape [3, 2]"));
    RANK_CHECK_THAT(refused([&] { functional::all_to_all(input, group); }), ContainsSubstring("a multiple"));
    RANK_CHECK_THAT(refused([&] {
                      functional::all_to_all(input, {1, 1}, {1, 1}, group);
                    }),
                    ContainsSubstring("expected 2 input counts of at least 0 that add up to the rows"));
    RANK_CHECK_THAT(refused([&] {
                      functional::all_to_all(input, {1}, {1, 2}, group);
                    }),
                    ContainsSubstring("expected 2 split sizes for the input and the output, got 2 and 1"));
    RANK_CHECK_THAT(refused([&] { functional::broadcast(input, 2, group); }), ContainsSubstring("2"));
    RANK_CHECK_THAT(refused([&] { functional::all_reduce(at::Tensor(), group); }), ContainsSubstring("undefined"));
    RANK_CHECK(functional::all_reduce(input, group).sizes() == input.sizes());
    RANK_CHECK(functional::all_reduce_coalesced({}, group).empty());
    RANK_CHECK(functional::all_gather(here(at::ones({})), group).sizes().vec() == std::vector<int64_t>{2});
  });
}

}  // namespace
}  // namespace ddp
