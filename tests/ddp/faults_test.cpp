// One rank goes wrong, at 2, 3 and 4 ranks and in every position: the others end with a message that says which
// collective and which rank, and nothing hangs. Ranks that are killed: faults_test.py.
#include <torch/optim/sgd.h>

#include <chrono>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "comm/collectives.h"
#include "ddp/comm_hooks.h"
#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/support.h"

namespace ddp {
namespace {

using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kSteps = 4;
constexpr int kFaultyStep = 2;
constexpr auto kTimeout = std::chrono::seconds(3);

struct Place {
  int size;
  int victim;
};

std::vector<Place> places() {
  std::vector<Place> all;
  for (const int size : {2, 3, 4}) {
    for (int victim = 0; victim < size; ++victim) all.push_back({size, victim});
  }
  return all;
}

class Faults : public testing::TestWithParam<std::tuple<Wire, Place>> {
 protected:
  static Place place() { return std::get<1>(GetParam()); }

  // Runs `step` on each rank; what a rank throws is checked, then leaves the rank as in a program, closing its group.
  template <typename Train>
  static void run(Train train, const std::function<void(const GroupHandle&, const std::string&)>& check) {
    const auto begin = std::chrono::steady_clock::now();
    std::string ignored = message_of([&] {
      run_ranks(place().size,
                [&](const GroupHandle& group) {
                  try {
                    train(group);
                  } catch (const std::exception& error) {
                    check(group, error.what());
                    throw;
                  }
                  check(group, "");
                },
                {.wire = std::get<0>(GetParam()), .timeout = kTimeout});
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10 * kTimeout) << ignored;
  }

  template <typename Fault>
  static void train(const GroupHandle& group, const DdpOptions& options, Fault fault) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group, options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < kSteps; ++step) {
      const bool faulty = step == kFaultyStep && group.rank() == place().victim;
      if (faulty && fault == 's') continue;
      optimizer.zero_grad();
      torch::Tensor loss = model(numbers({2, 6}, group.rank())).square().mean();
      if (faulty && fault == 'n') loss = loss * std::numeric_limits<float>::quiet_NaN();
      loss.backward();
      optimizer.step();
    }
  }

  static testing::Matcher<std::string> names_victim() {
    return AllOf(HasSubstr("all_reduce of a gradient bucket of 332 bytes (number "),
                 HasSubstr("did not take part in it: rank " + std::to_string(place().victim)));
  }
};

INSTANTIATE_TEST_SUITE_P(Everywhere, Faults,
                         testing::Combine(testing::Values(Wire::kGloo, Wire::kLate), testing::ValuesIn(places())),
                         [](const auto& parameter) {
                           const Place place = std::get<1>(parameter.param);
                           return std::string(std::get<0>(parameter.param) == Wire::kGloo ? "gloo" : "late") +
                                  std::to_string(place.size) + "ranks_rank" + std::to_string(place.victim);
                         });

TEST_P(Faults, a_rank_that_skips_a_batch) {
  run([](const GroupHandle& group) { train(group, {}, 's'); },
      [](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place().victim) return;
        EXPECT_THAT(message, AllOf(HasSubstr(who(group.info())), names_victim()));
      });
}

TEST_P(Faults, a_rank_with_another_model) {
  run(
      [](const GroupHandle& group) {
        const torch::nn::Linear layer(group.rank() == place().victim ? 7 : 6, 2);
        DistributedDataParallel<torch::nn::Linear> model(layer, group);
      },
      [](const GroupHandle& group, const std::string& message) {
        EXPECT_THAT(message, AllOf(HasSubstr(who(group.info()) + ": the ranks' models differ"),
                                   HasSubstr("'weight' Float [2, 6]"), HasSubstr("'weight' Float [2, 7]")));
      });
}

TEST_P(Faults, nan_gradients_that_are_looked_for) {
  run([](const GroupHandle& group) { train(group, {.check_gradients = true}, 'n'); },
      [](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place().victim) {
          EXPECT_THAT(message, HasSubstr(who(group.info()) + ": a gradient is NaN or infinite before its reduction: "));
        } else {
          EXPECT_THAT(message, AllOf(HasSubstr(who(group.info())), names_victim()));
        }
      });
}

TEST_P(Faults, nan_gradients_that_nobody_looks_for_reach_every_rank_and_stop_none) {
  run(
      [](const GroupHandle& group) {
        auto net = make<TwoLayers>(1);
        DistributedDataParallel<TwoLayers> model(net, group);
        const float factor = group.rank() == place().victim ? std::numeric_limits<float>::quiet_NaN() : 1.F;
        (model(numbers({2, 6}, group.rank())) * factor).sum().backward();
        EXPECT_TRUE(net->first->weight.grad().isnan().all().item<bool>());
      },
      [](const GroupHandle&, const std::string& message) { EXPECT_EQ(message, ""); });
}

TEST_P(Faults, a_hook_that_throws) {
  run(
      [](const GroupHandle& group) {
        int calls = 0;
        train(group,
              {.comm_hook =
                   [&, mean = hooks::all_reduce(group)](GradientBucket& bucket) {
                     if (++calls == kFaultyStep + 1 && group.rank() == place().victim)
                       throw std::runtime_error("no more");
                     return mean(bucket);
                   }},
              '-');
      },
      [](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place().victim) {
          EXPECT_THAT(message, HasSubstr("the communication hook failed in bucket 0: no more"));
        } else {
          EXPECT_THAT(message, AllOf(HasSubstr(who(group.info())), names_victim()));
        }
      });
}

TEST_P(Faults, a_rank_that_leaves_with_an_exception_between_steps) {
  run(
      [](const GroupHandle& group) {
        auto net = make<TwoLayers>(1);
        DistributedDataParallel<TwoLayers> model(net, group);
        for (int step = 0; step < kSteps; ++step) {
          const torch::Tensor loss = model(numbers({2, 6}, group.rank())).square().mean();
          if (step == kFaultyStep && group.rank() == place().victim) throw std::runtime_error("leaving");
          loss.backward();
        }
      },
      [](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place().victim) return;
        EXPECT_THAT(message, AllOf(HasSubstr(who(group.info())), names_victim()));
      });
}

}  // namespace
}  // namespace ddp
