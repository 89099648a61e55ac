// What SyncBatchNorm refuses, on every rank and without leaving another one waiting.
#include <torch/autograd.h>

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::here;
using test::numbers;
using test::run_ranks;
using test::Wire;
using torch::Tensor;

// Each rank's message. A rank's error must not leave the others waiting: the timeout of run_ranks would show.
template <typename Body>
std::vector<std::string> messages(int size, Body body, Wire wire = Wire::kGloo) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  run_ranks(size,
            [&](const GroupHandle& group) {
              try {
                body(group);
              } catch (const std::exception& error) {
                texts[static_cast<size_t>(group.rank())] = error.what();
              }
              barrier(group);  // nobody is left behind in a collective, and the group still works
            },
            {.wire = wire});
  return texts;
}

TEST_CASE("SyncBatchNormErrors: ranks that disagree on channels are found on all ranks") {
  for (const Wire wire : test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})) {
    const auto texts = messages(
        3,
        [](const GroupHandle& group) {
          const int64_t channels = group.rank() == 1 ? 8 : 4;
          auto norm = test::placed(SyncBatchNorm(channels, group));
          norm(numbers({2, channels, 3}, 0, torch::kFloat));
        },
        wire);
    for (size_t rank = 0; rank < 3; ++rank) {
      CHECK_THAT(texts[rank], ContainsSubstring("rank " + std::to_string(rank) + " of 3: SyncBatchNorm") &&
                                  ContainsSubstring("disagree on the number of channels") &&
                                  ContainsSubstring("rank 0 has an input of shape [2, 4, 3]") &&
                                  ContainsSubstring("rank 1 has an input of shape [2, 8, 3]"));
    }
  }
}

TEST_CASE("SyncBatchNormErrors: a wrong channel count says rank and shapes and frees the other ranks") {
  for (const bool first_forward : {true, false}) {
    int64_t tracked[2] = {};
    const auto texts = messages(2, [&](const GroupHandle& group) {
      auto norm = test::placed(SyncBatchNorm(4, group));
      if (!first_forward) norm(numbers({2, 4, 3}, 0, torch::kFloat));
      try {
        norm(numbers({2, group.rank() == 1 ? 5 : 4, 3}, 0, torch::kFloat));
      } catch (...) {
        tracked[group.rank()] = norm->num_batches_tracked.item<int64_t>();
        throw;
      }
    });
    UNSCOPED_INFO(first_forward);
    CHECK_THAT(texts[0], ContainsSubstring("rank 1"));
    CHECK_THAT(texts[1],
               ContainsSubstring("rank 1 of 2: SyncBatchNorm: expected 4 channels") && ContainsSubstring("[2, 5, 3]"));
    INFO("a refused batch is not counted");
    CHECK(tracked[1] == (first_forward ? 0 : 1));
  }
}

TEST_CASE("SyncBatchNormErrors: other inputs that do not fit") {
  const auto refused = [](const Tensor& input) {
    return messages(2, [&](const GroupHandle& group) { SyncBatchNorm(4, group)->forward(input); })[1];
  };
  CHECK_THAT(refused(here(torch::ones({4}))),
             ContainsSubstring("rank 1") && ContainsSubstring("2 to 5 dimensions") && ContainsSubstring("[4]"));
  CHECK_THAT(refused(here(torch::ones({1, 4, 1, 1, 1, 1}))), ContainsSubstring("2 to 5 dimensions"));
  CHECK_THAT(refused(here(torch::ones({3, 4}, torch::kLong))),
             ContainsSubstring("floating-point") && ContainsSubstring("Long"));
}

TEST_CASE("SyncBatchNormErrors: one value per channel in all is refused on all ranks") {
  const auto texts = messages(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(4, group));
    norm(numbers({group.rank(), 4, 1}, 0, torch::kFloat));
  });
  CHECK_THAT(texts[0], ContainsSubstring("rank 0") && ContainsSubstring("more than 1 value per channel") &&
                           ContainsSubstring("[0, 4, 1]"));
  CHECK_THAT(texts[1], ContainsSubstring("rank 1") && ContainsSubstring("more than 1 value per channel") &&
                           ContainsSubstring("[1, 4, 1]"));
}

TEST_CASE("SyncBatchNormErrors: a rank without gradients is found before the others wait for it") {
  const auto texts = messages(3, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(4, group));
    Tensor x = numbers({2, 4}, 0, torch::kFloat).requires_grad_();
    if (group.rank() == 1) {
      const torch::NoGradGuard no_grad;
      norm(x);
    } else {
      norm(x);
    }
  });
  for (const std::string& text : texts)
    CHECK_THAT(text, ContainsSubstring("ranks 0, 2 will need the gradient") && ContainsSubstring("rank 1 will not"));
}

TEST_CASE("SyncBatchNormErrors: double backward is refused") {
  const auto texts = messages(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(4, group));
    Tensor x = numbers({3, 4}, 0, torch::kFloat).requires_grad_();
    const auto first = torch::autograd::grad({norm(x).square().sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    RANK_INFO("the first derivative itself is fine");
    RANK_CHECK(first.isfinite().all().item<bool>());
    first.square().sum().backward();
  });
  for (size_t rank = 0; rank < 2; ++rank)
    CHECK_THAT(texts[rank], ContainsSubstring("rank " + std::to_string(rank)) &&
                                ContainsSubstring("double backward is not supported"));
}

}  // namespace
}  // namespace ddp
