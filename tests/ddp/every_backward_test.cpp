// Every backward of a wrapped model leaves the mean over the ranks, however forwards and backwards follow one another.
// What the gradients must be is computed from copies of the model that are not wrapped.
#include <ATen/ops/zeros_like.h>
#include <torch/autograd.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_close;
using test::expect_gradients;
using test::here;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::Wire;

// Two outputs, of which each needs parameters of its own and those of the trunk.
struct TwoHeadsImpl : torch::nn::Module {
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::tanh(trunk(x));
    return {left(y), right(y)};
  }
  torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(6, 5));
  torch::nn::Linear left = register_module("left", torch::nn::Linear(5, 3));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(5, 2));
};
TORCH_MODULE(TwoHeads);

using Gradients = std::vector<torch::Tensor>;
using Loss = std::function<torch::Tensor(TwoHeads& net, int rank)>;

torch::Tensor input(int rank, int salt) {
  return numbers({3, 6}, rank + 10 * salt);
}
torch::Tensor both(const std::pair<torch::Tensor, torch::Tensor>& outputs) {
  return outputs.first.square().sum() + outputs.second.sin().sum();
}
Loss loss_on(int salt) {
  return [salt](TwoHeads& net, int rank) { return both(net->forward(input(rank, salt))); };
}

// Of one output.
torch::Tensor left_of(const std::pair<torch::Tensor, torch::Tensor>& outputs) {
  return outputs.first.square().sum();
}
torch::Tensor right_of(const std::pair<torch::Tensor, torch::Tensor>& outputs) {
  return outputs.second.sin().sum();
}
Loss left_on(int salt) {
  return [salt](TwoHeads& net, int rank) { return left_of(net->forward(input(rank, salt))); };
}
Loss right_on(int salt) {
  return [salt](TwoHeads& net, int rank) { return right_of(net->forward(input(rank, salt))); };
}

// The sum over `losses` of the gradients' means over `size` ranks.
Gradients expected_of(const std::vector<Loss>& losses, int size) {
  Gradients sum(6);
  for (const Loss& loss : losses) {
    const Gradients mean =
        test::mean_gradients<TwoHeads>(7, size, [&](TwoHeads& net, int rank) { loss(net, rank).backward(); });
    for (size_t i = 0; i < mean.size(); ++i) {
      if (mean[i].defined()) sum[i] = sum[i].defined() ? sum[i] + mean[i] : mean[i];
    }
  }
  return sum;
}

// Each with both engines, where there are two, and with every option that changes the bookkeeping.
std::vector<DdpOptions> all_options() {
  std::vector<DdpOptions> all;
  for (const bool views : {true, false}) {
    all.push_back({.bucket_cap_bytes = 100, .gradient_as_bucket_view = views, .own_engine = false});
    all.push_back({.find_unused_parameters = true, .gradient_as_bucket_view = views});
    all.push_back({.bucket_cap_bytes = 100, .static_graph = true, .gradient_as_bucket_view = views});
  }
  all.push_back({.find_unused_parameters = true, .static_graph = true});
  if (!test::is_on_devices()) all.push_back({.bucket_cap_bytes = 100, .own_engine = true});
  return all;
}

std::string text_of(const DdpOptions& options) {
  return std::string(options.find_unused_parameters ? "find_unused " : "") +
         (options.static_graph ? "static_graph " : "") + (options.gradient_as_bucket_view ? "views " : "") +
         (options.own_engine.value_or(false) ? "own engine" : "");
}

class EveryBackward {
 protected:
  using Body = std::function<void(DistributedDataParallel<TwoHeads>& model, TwoHeads& net, const GroupHandle& group)>;

  // `body` for every option, with the wrapper's first steps and with later ones.
  void run(const Body& body) const {
    for (const DdpOptions& options : all_options()) {
      run_ranks(size_,
                [&](const GroupHandle& group) {
                  RANK_INFO(text_of(options));
                  auto net = make<TwoHeads>(7);
                  DistributedDataParallel<TwoHeads> model(net, group, options);
                  for (int step = 0; step < 4; ++step) {
                    RANK_INFO("step " << step);
                    net->zero_grad(/*set_to_none=*/step % 2 == 0 || options.find_unused_parameters);
                    body(model, net, group);
                  }
                },
                {.wire = wire_});
    }
  }

  const int size_ = GENERATE(2, 3, 4);
  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})));
  FIXTURE_INFO("ranks: " << size_ << ", wire: " << wire_);
};

TEST_CASE_METHOD(EveryBackward, "EveryBackward: accumulation under no_sync from the first step on") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    {
      const auto guard = model->no_sync();
      both(model(input(group.rank(), 1))).backward();
    }
    both(model(input(group.rank(), 2))).backward();
    expect_gradients(net, expected_of({loss_on(1), loss_on(2)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: a forward twice backward adds the mean twice") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    const auto loss = both(model(input(group.rank(), 1)));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    expect_gradients(net, expected_of({loss_on(1), loss_on(1)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: three forwards and then three backwards in any order") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    std::vector<torch::Tensor> losses;
    for (int salt = 1; salt <= 3; ++salt) losses.push_back(both(model(input(group.rank(), salt))));
    losses[1].backward();
    losses[2].backward();
    losses[0].backward();
    expect_gradients(net, expected_of({loss_on(1), loss_on(2), loss_on(3)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: two of three forwards in one backward and the third in another") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    std::vector<torch::Tensor> losses;
    for (int salt = 1; salt <= 3; ++salt) losses.push_back(both(model(input(group.rank(), salt))));
    (losses[0] + losses[2]).backward();
    losses[1].backward();
    expect_gradients(net, expected_of({loss_on(1), loss_on(2), loss_on(3)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: gradients by autograd grad before and between do not count") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    const auto parameters = net->parameters();
    const auto probe = torch::autograd::grad({both(model(input(group.rank(), 5)))}, parameters);
    both(model(input(group.rank(), 1))).backward();
    expect_gradients(net, expected_of({loss_on(1)}, group.size()));
    auto alone = make<TwoHeads>(7);
    const auto expected = torch::autograd::grad({loss_on(5)(alone, group.rank())}, alone->parameters());
    for (size_t i = 0; i < expected.size(); ++i) expect_close(probe[i], expected[i]);
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: what ran under no_sync stays local") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    both(model(input(group.rank(), 1))).backward();  // a reduction is finished
    net->zero_grad();
    torch::Tensor outside;
    {
      const auto guard = model->no_sync();
      const auto loss = both(model(input(group.rank(), 2)));
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      outside = both(model(input(group.rank(), 3)));
    }
    outside.backward();
    auto alone = make<TwoHeads>(7);
    for (const int salt : {2, 2, 3}) loss_on(salt)(alone, group.rank()).backward();
    Gradients expected;
    for (const auto& parameter : alone->parameters()) expected.push_back(parameter.grad());
    expect_gradients(net, expected);
    both(model(input(group.rank(), 4))).backward();
    expect_gradients(net, expected_of({loss_on(2), loss_on(2), loss_on(3), loss_on(4)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward,
                 "EveryBackward: what ran under no_sync stays local while another forward waits or was dropped") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    const auto pending = both(model(input(group.rank(), 1)));
    both(model(input(group.rank(), 9)));  // dropped
    {
      const auto guard = model->no_sync();
      both(model(input(group.rank(), 2))).backward();
    }
    auto alone = make<TwoHeads>(7);
    loss_on(2)(alone, group.rank()).backward();
    Gradients expected;
    for (const auto& parameter : alone->parameters()) expected.push_back(parameter.grad());
    expect_gradients(net, expected);
    pending.backward();
    expect_gradients(net, expected_of({loss_on(1), loss_on(2)}, group.size()));
  });
}

// Of which each uses other parameters.
TEST_CASE_METHOD(EveryBackward, "EveryBackward: forwards with other unused parameters whose backwards come later") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const bool views : {true, false}) {
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(
                    net, group, {.find_unused_parameters = true, .gradient_as_bucket_view = views});
                for (int step = 0; step < 3; ++step) {
                  net->zero_grad();
                  const auto first = both(model(input(group.rank(), 2)));
                  const auto second = left_of(model(input(group.rank(), 1)));
                  first.backward();
                  second.backward();
                  expect_gradients(net, expected_of({left_on(1), loss_on(2)}, group.size()));
                }
              }
            },
            {.wire = wire_});
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: a backward past the wrapper is refused and loses nothing") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    const std::string message = message_of([&] { both(net->forward(input(group.rank(), 1))).backward(); });
    RANK_CHECK_THAT(message, ContainsSubstring("parameter '") && ContainsSubstring("no_sync()"));
    RANK_CHECK_THAT(message, ContainsSubstring("not from net(x)"));
    net->zero_grad();
    {
      const auto guard = model->no_sync();
      both(net->forward(input(group.rank(), 1))).backward();  // says that it is to stay local
    }
    net->zero_grad();
    both(model(input(group.rank(), 2))).backward();
    expect_gradients(net, expected_of({loss_on(2)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: a first backward that throws leaves later ones right") {
  for (const DdpOptions& options : all_options()) {
    run_ranks(size_,
              [&](const GroupHandle& group) {
                RANK_INFO(text_of(options));
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(net, group, options);
                auto [left, right] = model(input(group.rank(), 1));
                // Before any gradient is there, so that c10d has nothing to complain about.
                torch::Tensor loss = left.sum() + right.sum();
                loss.register_hook([](const torch::Tensor&) -> torch::Tensor { throw std::domain_error("mine"); });
                RANK_CHECK_THAT(message_of([&] { (loss * 1).backward(); }), ContainsSubstring("mine"));
                for (int step = 0; step < 3; ++step) {
                  net->zero_grad();
                  both(model(input(group.rank(), 2 + step))).backward();
                  expect_gradients(net, expected_of({loss_on(2 + step)}, group.size()));
                }
              },
              {.wire = wire_});
  }
}

// The optimizer must not step on gradients that differ between the ranks.
TEST_CASE_METHOD(EveryBackward, "EveryBackward: an output that is not used has no effect or is named in its backward") {
  for (const DdpOptions& options : all_options()) {
    run_ranks(size_,
              [&](const GroupHandle& group) {
                RANK_INFO(text_of(options));
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(net, group, options);
                const bool finds = options.find_unused_parameters || options.static_graph;
                for (int step = 0; finds && step < 4; ++step) {
                  net->zero_grad();
                  left_of(model(input(group.rank(), 1))).backward();
                  expect_gradients(net, expected_of({left_on(1)}, group.size()));
                }
              },
              {.wire = wire_});
  }
  // Of a static graph, which had used it before.
  run_ranks(size_,
            [&](const GroupHandle& group) {
              auto net = make<TwoHeads>(7);
              DistributedDataParallel<TwoHeads> model(net, group, {.bucket_cap_bytes = 100, .static_graph = true});
              for (int step = 0; step < 3; ++step) both(model(input(group.rank(), step))).backward();
              net->zero_grad();
              const std::string message = message_of([&] { left_of(model(input(group.rank(), 1))).backward(); });
              RANK_CHECK_THAT(message, ContainsSubstring("right.weight") && ContainsSubstring("right.bias"));
            },
            {.wire = wire_});
}

// The graph of a gradient penalty need not contain the output, nor bring a gradient for every parameter.
TEST_CASE_METHOD(EveryBackward, "EveryBackward: gradient penalties") {
  const auto penalty = [](const torch::Tensor& loss, const torch::Tensor& x) {
    const auto slope = torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    return (slope.norm() - 1).square();
  };
  const Loss with_penalty = [&](TwoHeads& net, int rank) {
    const auto x = input(rank, 1).requires_grad_();
    const auto loss = both(net->forward(x));
    return loss + penalty(loss, x);
  };
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    const auto x = input(group.rank(), 1).requires_grad_();
    const auto loss = both(model(x));
    (loss + penalty(loss, x)).backward();
    expect_gradients(net, expected_of({with_penalty}, group.size()));
  });
  // Alone: no gradient for biases of the last layer.
  const Loss alone = [&](TwoHeads& net, int rank) {
    const auto x = input(rank, 1).requires_grad_();
    return penalty(net->forward(x).first.sum(), x);
  };
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const bool views : {true, false}) {
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(
                    net, group, {.find_unused_parameters = true, .gradient_as_bucket_view = views});
                for (int step = 0; step < 3; ++step) {
                  net->zero_grad();
                  const auto x = input(group.rank(), 1).requires_grad_();
                  penalty(model(x).first.sum(), x).backward();
                  expect_gradients(net, expected_of({alone}, group.size()));
                }
              }
              auto net = make<TwoHeads>(7);
              DistributedDataParallel<TwoHeads> model(net, group);
              const auto x = input(group.rank(), 1).requires_grad_();
              penalty(model(x).first.sum(), x).backward();  // the loss itself might be to come
              expect_close(net->trunk->weight.grad(), expected_of({alone}, group.size())[0]);
              RANK_CHECK_THAT(message_of([&] { model(x); }), ContainsSubstring("left.bias"));
            },
            {.wire = wire_});
}

// As Python does, but with averaged gradients until then.
TEST_CASE_METHOD(EveryBackward,
                 "EveryBackward: a backward that may be one of several leaves means, and the next forward asks") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const DdpOptions& options : all_options()) {
                if (options.find_unused_parameters || options.static_graph) continue;
                RANK_INFO(text_of(options));
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(net, group, options);
                const Gradients of_left = expected_of({left_on(1)}, group.size());
                for (int step = 0; step < 3; ++step) {
                  net->zero_grad();
                  const auto outputs = model(input(group.rank(), 1));
                  left_of(outputs).backward({}, /*retain_graph=*/true);
                  for (size_t i = 0; i < 4; ++i) expect_close(net->parameters()[i].grad(), of_left[i]);
                  right_of(outputs).backward();
                  expect_gradients(net, expected_of({left_on(1), right_on(1)}, group.size()));
                }
                const auto kept = model(input(group.rank(), 1));
                left_of(kept).backward();
                const std::string message = message_of([&] { model(input(group.rank(), 1)); });
                RANK_CHECK_THAT(
                    message,
                    ContainsSubstring("Expected to have finished reduction in the prior iteration") &&
                        ContainsSubstring("right.weight, right.bias") &&
                        ContainsSubstring("did not receive grad for rank " + std::to_string(group.rank()) + ": 4 5"));
              }
            },
            {.wire = wire_});
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: a part of the outputs once more") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    const auto outputs = model(input(group.rank(), 1));
    both(outputs).backward({}, /*retain_graph=*/true);
    right_of(outputs).backward();
    expect_gradients(net, expected_of({loss_on(1), right_on(1)}, group.size()));
  });
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: one backward for each output") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const bool fixed : {true, false}) {
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(net, group,
                                                        {.find_unused_parameters = !fixed, .static_graph = fixed});
                for (int step = 0; step < 4; ++step) {
                  RANK_INFO((fixed ? "static graph" : "find unused") << ", step " << step);
                  net->zero_grad();
                  const auto outputs = model(input(group.rank(), 1));
                  left_of(outputs).backward({}, /*retain_graph=*/true);
                  right_of(outputs).backward();
                  expect_gradients(net, expected_of({left_on(1), right_on(1)}, group.size()));
                }
              }
            },
            {.wire = wire_});
}

TEST_CASE_METHOD(EveryBackward, "EveryBackward: static graphs inside join, also of a rank that begins later") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const bool views : {true, false}) {
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(
                    net, group, {.bucket_cap_bytes = 100, .static_graph = true, .gradient_as_bucket_view = views});
                const auto step = [&](int salt) {
                  net->zero_grad();
                  both(model(input(group.rank(), salt))).backward();
                };
                model->join([&] {  // the last rank has no input at all
                  for (int i = 0; i < 2 * (group.size() - 1 - group.rank()); ++i) step(i);
                });
                model->join([&] {
                  for (int i = 0; i < 2 + group.rank(); ++i) step(i);
                });
                for (int i = 0; i < 3; ++i) {
                  step(i);
                  expect_gradients(net, expected_of({loss_on(i)}, group.size()));
                }
              }
            },
            {.wire = wire_});
}

// Also where the engine does not ask the ranks who has used what.
TEST_CASE_METHOD(EveryBackward, "EveryBackward: a parameter that no rank has used in a backward has no gradient") {
  run([&](auto& model, TwoHeads& net, const GroupHandle& group) {
    net->zero_grad();
    const auto outputs = model(input(group.rank(), 1));
    both(outputs).backward({}, /*retain_graph=*/true);  // of a static graph, which cannot leave out any
    net->zero_grad();
    right_of(outputs).backward({}, /*retain_graph=*/true);
    expect_gradients(net, expected_of({right_on(1)}, group.size()));
    net->zero_grad();
    left_of(outputs).backward();
    expect_gradients(net, expected_of({left_on(1)}, group.size()));
  });
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const DdpOptions& options : all_options()) {
                RANK_INFO(text_of(options));
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(net, group, options);
                for (int step = 0; step < 3; ++step) {
                  RANK_INFO("step " << step);
                  if (step > 0 && options.static_graph) continue;
                  net->zero_grad();
                  const auto outputs = model(input(group.rank(), 1));
                  left_of(outputs).backward({}, /*retain_graph=*/true);
                  expect_gradients(net, expected_of({left_on(1)}, group.size()));
                  net->zero_grad();
                  right_of(outputs).backward();
                  expect_gradients(net, expected_of({right_on(1)}, group.size()));
                }
              }
            },
            {.wire = wire_});
}

// The ranks differ in what they use.
TEST_CASE_METHOD(EveryBackward, "EveryBackward: a parameter that one rank has used has the same gradient on all") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const DdpOptions& options : all_options()) {
                if (options.static_graph) continue;
                RANK_INFO(text_of(options));
                auto net = make<TwoHeads>(7);
                DistributedDataParallel<TwoHeads> model(net, group, options);
                for (int step = 0; step < 3; ++step) {
                  net->zero_grad();
                  const auto outputs = model(input(group.rank(), 1));
                  const bool is_left = group.rank() == 0;
                  (is_left ? left_of(outputs) : right_of(outputs) * 0).backward({}, /*retain_graph=*/true);
                  const Loss first = [](TwoHeads& alone, int rank) {
                    const auto heads = alone->forward(input(rank, 1));
                    return rank == 0 ? left_of(heads) : right_of(heads) * 0;
                  };
                  expect_gradients(net, expected_of({first}, group.size()));
                  net->zero_grad();
                  (is_left ? right_of(outputs) : left_of(outputs)).backward();
                }
              }
            },
            {.wire = wire_});
}

TEST_CASE("EveryBackward: inside join a second backward of a forward is refused") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoHeads>(7);
    DistributedDataParallel<TwoHeads> model(net, group);
    const std::string message = message_of([&] {
      model->join([&] {
        const auto loss = both(model(input(group.rank(), 1)));
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();
      });
    });
    RANK_CHECK_THAT(message, ContainsSubstring("inside join()"));
  });
}

}  // namespace
}  // namespace ddp
