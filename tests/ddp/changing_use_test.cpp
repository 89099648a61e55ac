// With find_unused_parameters each forward may use other parameters on each rank, also where forwards and backwards
// overlap. What the gradients must be is computed from copies of the model that are not wrapped, in float64: other
// orders of additions change the last bits only.
#include <torch/nn/modules/linear.h>

#include <optional>
#include <string>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using test::make;
using test::numbers;
using test::run_ranks;
using test::Wire;

// Bits of `use`: which of two layers it goes through.
struct DetoursImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, int use) {
    torch::Tensor y = torch::tanh(first(x));
    if ((use & 1) != 0) y = torch::tanh(left(y)) + y;
    if ((use & 2) != 0) y = torch::tanh(right(y)) + y;
    return last(y);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 5));
  torch::nn::Linear left = register_module("left", torch::nn::Linear(5, 5));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(5, 5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 2));
};
TORCH_MODULE(Detours);

// Another one on each rank and in each forward; rarely the same twice.
int use_of(int rank, int salt) {
  return (3 * rank + 5 * salt + salt * salt / 4) % 4;
}

template <typename Call>
torch::Tensor detour_loss(Call& call, int rank, int salt) {
  return call(numbers({3, 4}, rank + 10 * salt).to(torch::kDouble), use_of(rank, salt)).square().mean();
}

void add_detours(Detours& net, const std::vector<int>& salts, int rank) {
  net->to(torch::kDouble);
  const auto call = [&](const torch::Tensor& x, int use) { return net->forward(x, use); };
  for (const int salt : salts) detour_loss(call, rank, salt).backward();
}

// Of the forwards `salts`.
std::vector<torch::Tensor> mean_of_detours(const std::vector<int>& salts, int size) {
  return test::mean_gradients<Detours>(7, size, [&](Detours& net, int rank) { add_detours(net, salts, rank); });
}

void expect_detours(const Detours& net, const std::vector<torch::Tensor>& expected) {
  test::expect_gradients(net, expected, 1e-11, 1e-11);
}

class ChangingUse {
 protected:
  // `body(model, net, group, salt)`: forwards with salts from `salt` on.
  template <typename Body>
  void run(Body body) const {
    for (const bool views : {true, false}) {
      run_ranks(size_,
                [&](const GroupHandle& group) {
                  RANK_INFO((views ? "views" : "copies"));
                  auto net = make<Detours>(7);
                  net->to(torch::kDouble);
                  DistributedDataParallel<Detours> model(
                      net, group,
                      {.bucket_cap_bytes = 100, .find_unused_parameters = true, .gradient_as_bucket_view = views});
                  for (int step = 0; step < 8; ++step) {
                    RANK_INFO("step " << step);
                    net->zero_grad();
                    body(model, net, group, 10 * step);
                  }
                },
                {.wire = wire_});
    }
  }

  const int size_ = GENERATE(2, 3);
  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm})));
  FIXTURE_INFO("ranks: " << size_ << ", wire: " << wire_);
};

TEST_CASE_METHOD(ChangingUse, "ChangingUse: a forward runs between those that wait and their backwards") {
  run([](auto& model, Detours& net, const GroupHandle& group, int salt) {
    const int rank = group.rank();
    const auto loss0 = detour_loss(model, rank, salt);
    const auto loss1 = detour_loss(model, rank, salt + 1);
    loss0.backward();
    expect_detours(net, mean_of_detours({salt}, group.size()));
    const auto loss2 = detour_loss(model, rank, salt + 2);
    loss1.backward();
    expect_detours(net, mean_of_detours({salt, salt + 1}, group.size()));
    const auto loss3 = detour_loss(model, rank, salt + 3);
    loss3.backward();
    expect_detours(net, mean_of_detours({salt, salt + 1, salt + 3}, group.size()));
    loss2.backward();
    expect_detours(net, mean_of_detours({salt, salt + 1, salt + 2, salt + 3}, group.size()));
  });
}

TEST_CASE_METHOD(ChangingUse, "ChangingUse: a second backward runs after another forward") {
  run([](auto& model, Detours& net, const GroupHandle& group, int salt) {
    const int rank = group.rank();
    const auto loss0 = detour_loss(model, rank, salt);
    loss0.backward({}, /*retain_graph=*/true);
    const auto loss1 = detour_loss(model, rank, salt + 1);
    loss0.backward();
    expect_detours(net, mean_of_detours({salt, salt}, group.size()));
    loss1.backward();
    expect_detours(net, mean_of_detours({salt, salt, salt + 1}, group.size()));
  });
}

TEST_CASE_METHOD(ChangingUse, "ChangingUse: a backward of several forwards, in and out of no_sync") {
  run([](auto& model, Detours& net, const GroupHandle& group, int salt) {
    const int rank = group.rank();
    std::optional<NoSyncGuard> guard(model->no_sync());
    const auto local = detour_loss(model, rank, salt);
    guard.reset();
    const auto outside = detour_loss(model, rank, salt + 1);
    (local + outside).backward();
    expect_detours(net, mean_of_detours({salt, salt + 1}, group.size()));
    const auto waiting = detour_loss(model, rank, salt + 2);
    guard.emplace(model->no_sync());
    detour_loss(model, rank, salt + 3).backward();
    waiting.backward();
    expect_detours(net, mean_of_detours({salt, salt + 1, salt + 2, salt + 3}, group.size()));
  });
}

// Each rank decides by itself which of its forwards waits.
TEST_CASE_METHOD(ChangingUse, "ChangingUse: ranks with another order of their backwards") {
  run([](auto& model, Detours& net, const GroupHandle& group, int salt) {
    const int rank = group.rank();
    std::vector<torch::Tensor> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(detour_loss(model, rank, salt + i));
    for (int i = 0; i < 3; ++i) losses[(i + rank) % 3].backward();
    expect_detours(net, mean_of_detours({salt, salt + 1, salt + 2}, group.size()));
  });
}

}  // namespace
}  // namespace ddp
