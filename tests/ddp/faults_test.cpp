// One rank goes wrong, at 2, 3 and 4 ranks and in every position: the others end with a message that says which
// collective and which rank, and nothing hangs. Ranks that are killed: faults_test.py.
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;

constexpr int kFaultSteps = 4;
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

class Faults {
 protected:
  // Runs `step` on each rank; what a rank throws is checked, then leaves the rank as in a program, closing its group.
  template <typename Train>
  void run(Train train, const std::function<void(const GroupHandle&, const std::string&)>& check) {
    const auto begin = std::chrono::steady_clock::now();
    std::string ignored = message_of([&] {
      run_ranks(place_.size,
                [&](const GroupHandle& group) {
                  try {
                    train(group);
                  } catch (const std::exception& error) {
                    check(group, error.what());
                    throw;
                  }
                  check(group, "");
                },
                {.wire = wire_, .timeout = kTimeout});
    });
    RANK_INFO(ignored);
    RANK_CHECK(std::chrono::steady_clock::now() - begin < 10 * kTimeout);
  }

  template <typename Fault>
  void train(const GroupHandle& group, const DdpOptions& options, Fault fault) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group, options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < kFaultSteps; ++step) {
      const bool faulty = step == kFaultyStep && group.rank() == place_.victim;
      if (faulty && fault == 's') continue;
      optimizer.zero_grad();
      torch::Tensor loss = model(numbers({2, 6}, group.rank())).square().mean();
      if (faulty && fault == 'n') loss = loss * std::numeric_limits<float>::quiet_NaN();
      loss.backward();
      optimizer.step();
    }
  }

  auto names_victim() const {
    return test::ContainsAll({"all_reduce of a gradient bucket of 332 bytes (number ",
                              "did not take part in it: rank " + std::to_string(place_.victim)});
  }

  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})));
  const Place place_ = GENERATE(from_range(places()));
  FIXTURE_INFO("wire: " << wire_ << ", rank " << place_.victim << " of " << place_.size);
};

TEST_CASE_METHOD(Faults, "Faults: a rank that skips a batch") {
  run([this](const GroupHandle& group) { train(group, {}, 's'); },
      [this](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place_.victim) return;
        RANK_CHECK_THAT(message, ContainsSubstring(who(group.info())) && names_victim());
      });
}

TEST_CASE_METHOD(Faults, "Faults: a rank with another model") {
  run(
      [this](const GroupHandle& group) {
        const torch::nn::Linear layer(group.rank() == place_.victim ? 7 : 6, 2);
        DistributedDataParallel<torch::nn::Linear> model(layer, group);
      },
      [this](const GroupHandle& group, const std::string& message) {
        RANK_CHECK_THAT(message, ContainsSubstring(who(group.info()) + ": the ranks' models differ") &&
                                     ContainsSubstring("'weight' Float [2, 6]") &&
                                     ContainsSubstring("'weight' Float [2, 7]"));
      });
}

TEST_CASE_METHOD(Faults, "Faults: NaN gradients that are looked for") {
  run([this](const GroupHandle& group) { train(group, {.check_gradients = true}, 'n'); },
      [this](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place_.victim) {
          RANK_CHECK_THAT(
              message, ContainsSubstring(who(group.info()) + ": a gradient is NaN or infinite before its reduction: "));
        } else {
          RANK_CHECK_THAT(message, ContainsSubstring(who(group.info())) && names_victim());
        }
      });
}

TEST_CASE_METHOD(Faults, "Faults: NaN gradients that nobody looks for reach every rank and stop none") {
  run(
      [this](const GroupHandle& group) {
        auto net = make<TwoLayers>(1);
        DistributedDataParallel<TwoLayers> model(net, group);
        const float factor = group.rank() == place_.victim ? std::numeric_limits<float>::quiet_NaN() : 1.F;
        (model(numbers({2, 6}, group.rank())) * factor).sum().backward();
        RANK_CHECK(net->first->weight.grad().isnan().all().item<bool>());
      },
      [](const GroupHandle&, const std::string& message) { RANK_CHECK(message == ""); });
}

TEST_CASE_METHOD(Faults, "Faults: a hook that throws") {
  run(
      [this](const GroupHandle& group) {
        int calls = 0;
        train(group,
              {.comm_hook =
                   [&, mean = hooks::all_reduce(group)](GradientBucket& bucket) {
                     if (++calls == kFaultyStep + 1 && group.rank() == place_.victim)
                       throw std::runtime_error("no more");
                     return mean(bucket);
                   }},
              '-');
      },
      [this](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place_.victim) {
          RANK_CHECK_THAT(message, ContainsSubstring("the communication hook failed in bucket 0: no more"));
        } else {
          RANK_CHECK_THAT(message, ContainsSubstring(who(group.info())) && names_victim());
        }
      });
}

TEST_CASE_METHOD(Faults, "Faults: a rank that leaves with an exception between steps") {
  run(
      [this](const GroupHandle& group) {
        auto net = make<TwoLayers>(1);
        DistributedDataParallel<TwoLayers> model(net, group);
        for (int step = 0; step < kFaultSteps; ++step) {
          const torch::Tensor loss = model(numbers({2, 6}, group.rank())).square().mean();
          if (step == kFaultyStep && group.rank() == place_.victim) throw std::runtime_error("leaving");
          loss.backward();
        }
      },
      [this](const GroupHandle& group, const std::string& message) {
        if (group.rank() == place_.victim) return;
        RANK_CHECK_THAT(message, ContainsSubstring(who(group.info())) && names_victim());
      });
}

}  // namespace
}  // namespace ddp
