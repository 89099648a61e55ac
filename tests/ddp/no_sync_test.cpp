// A backward belongs to the forwards whose graph it goes through: it is reduced where one of them ran outside of
// no_sync(), and local where all ran under it, wherever the backward itself runs and whatever else waits. What the
// gradients must be is computed from copies of the model that are not wrapped.
#include <torch/autograd.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/again.h"
#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using test::expect_close;
using test::expect_gradients;
using test::make;
using test::numbers;
using test::run_ranks;
using test::Wire;

// Of a type in which the wrapper finds no tensors.
struct Hidden {
  torch::Tensor logits;
};

torch::Tensor logits_of(const Hidden& output) {
  return output.logits;
}
torch::Tensor logits_of(const torch::Tensor& output) {
  return output;
}

// Leaves a part of its graph in a member.
template <typename Output>
struct AuxiliaryImpl : torch::nn::Module {
  Output forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::tanh(first(x));
    auxiliary = y.pow(3).sum();
    return {second(y)};
  }
  torch::Tensor auxiliary;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 5));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(5, 2));
};
struct OpenAuxiliary : torch::nn::ModuleHolder<AuxiliaryImpl<torch::Tensor>> {
  using torch::nn::ModuleHolder<AuxiliaryImpl<torch::Tensor>>::ModuleHolder;
};
struct HiddenAuxiliary : torch::nn::ModuleHolder<AuxiliaryImpl<Hidden>> {
  using torch::nn::ModuleHolder<AuxiliaryImpl<Hidden>>::ModuleHolder;
};

torch::Tensor batch(int rank, int salt) {
  return numbers({3, 4}, rank + 10 * salt).requires_grad_();
}

enum class Kind { kOutput, kAuxiliary, kBoth, kPenalty };
const std::vector<Kind> kKinds{Kind::kOutput, Kind::kAuxiliary, Kind::kBoth, Kind::kPenalty};

// `call` is the wrapper or the net.
template <typename Net, typename Call>
torch::Tensor kind_loss(Kind kind, Net& net, Call& call, const torch::Tensor& x) {
  const torch::Tensor y = logits_of(call(x));
  switch (kind) {
    case Kind::kOutput:
      return y.square().sum();
    case Kind::kAuxiliary:
      return net->auxiliary * 2;
    case Kind::kBoth:
      return y.square().sum() + net->auxiliary;
    case Kind::kPenalty:
      break;
  }
  const auto slope = torch::autograd::grad({y.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  return (slope.norm() - 1).square();
}

struct Part {
  Kind kind;
  int salt;
};
using LossGradients = std::vector<torch::Tensor>;

template <typename Net>
void add_alone(Net& net, const std::vector<Part>& parts, int rank) {
  for (const Part& part : parts) {
    const auto call = [&](const torch::Tensor& x) { return net->forward(x); };
    kind_loss(part.kind, net, call, batch(rank, part.salt)).backward();
  }
}

// What the rank has alone.
template <typename Net>
LossGradients local_of(const std::vector<Part>& parts, int rank) {
  return test::mean_gradients<Net>(7, 1, [&](Net& net, int /*rank*/) { add_alone(net, parts, rank); });
}

template <typename Net>
LossGradients mean_of(const std::vector<Part>& parts, int size) {
  return test::mean_gradients<Net>(7, size, [&](Net& net, int rank) { add_alone(net, parts, rank); });
}

std::vector<DdpOptions> options_of(bool is_hidden) {
  std::vector<DdpOptions> all{{.own_engine = false}, {.gradient_as_bucket_view = false}};
  if (!test::is_on_devices()) all.push_back({.bucket_cap_bytes = 100, .own_engine = true});
  if (is_hidden) return all;  // these need the output's tensors
  all.push_back({.find_unused_parameters = true});
  all.push_back({.static_graph = true});
  return all;
}

class NoSync {
 protected:
  // `body(model, net, group)` for each kind of output and every option, with the wrapper's first steps and later ones.
  template <typename Body>
  void run(Body body) const {
    run_with<OpenAuxiliary>(body, /*is_hidden=*/false);
    run_with<HiddenAuxiliary>(body, /*is_hidden=*/true);
  }

  template <typename Net, typename Body>
  void run_with(Body body, bool is_hidden) const {
    for (const DdpOptions& options : options_of(is_hidden)) {
      run_ranks(size_,
                [&](const GroupHandle& group) {
                  RANK_INFO((is_hidden ? "hidden" : "open")
                            << (options.find_unused_parameters ? ", find_unused" : "")
                            << (options.static_graph ? ", static_graph" : "")
                            << (options.own_engine.value_or(true) ? "" : ", c10d's engine"));
                  auto net = make<Net>(7);
                  DistributedDataParallel<Net> model(net, group, options);
                  for (int step = 0; step < 3; ++step) {
                    RANK_INFO("step " << step);
                    net->zero_grad();
                    body(model, net, group);
                  }
                },
                {.wire = wire_});
    }
  }

  const int size_ = GENERATE(2, 3);
  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm})));
  FIXTURE_INFO("ranks: " << size_ << ", wire: " << wire_);
};

TEST_CASE_METHOD(NoSync, "NoSync: every loss of a forward under it stays local while others wait or were dropped") {
  run([&]<typename Net>(auto& model, Net& net, const GroupHandle& group) {
    const int rank = group.rank();
    for (const Kind kind : kKinds) {
      for (const bool first_waits : {false, true}) {
        RANK_INFO("loss " << static_cast<int>(kind) << (first_waits ? ", another one under it waits" : ""));
        net->zero_grad();
        model(batch(rank, 9));  // dropped
        const auto waiting = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
        {
          const auto guard = model->no_sync();
          const auto first = kind_loss(kind, net, model, batch(rank, 2));
          const auto local = first_waits ? kind_loss(kind, net, model, batch(rank, 3)) : first;
          local.backward();
          expect_gradients(net, local_of<Net>({{kind, first_waits ? 3 : 2}}, rank));
        }
        waiting.backward();
        expect_gradients(net, mean_of<Net>({{kind, first_waits ? 3 : 2}, {Kind::kBoth, 1}}, group.size()));
      }
    }
  });
}

TEST_CASE_METHOD(NoSync, "NoSync: a forward under it stays local in a backward outside") {
  run([&]<typename Net>(auto& model, Net& net, const GroupHandle& group) {
    const int rank = group.rank();
    for (const Kind kind : kKinds) {
      for (const bool another_waits : {true, false}) {
        RANK_INFO("loss " << static_cast<int>(kind) << (another_waits ? ", another waits" : ""));
        net->zero_grad();
        torch::Tensor local;
        {
          const auto guard = model->no_sync();
          local = kind_loss(kind, net, model, batch(rank, 2));
        }
        torch::Tensor waiting;
        if (another_waits) waiting = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
        local.backward();
        expect_gradients(net, local_of<Net>({{kind, 2}}, rank));
        if (!another_waits) waiting = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
        waiting.backward();
        expect_gradients(net, mean_of<Net>({{kind, 2}, {Kind::kBoth, 1}}, group.size()));
      }
    }
  });
}

TEST_CASE_METHOD(NoSync, "NoSync: forwards outside of it are reduced in backwards inside") {
  run([&]<typename Net>(auto& model, Net& net, const GroupHandle& group) {
    const int rank = group.rank();
    std::vector<torch::Tensor> losses;
    for (int salt = 1; salt <= 3; ++salt) losses.push_back(kind_loss(Kind::kBoth, net, model, batch(rank, salt)));
    const auto guard = model->no_sync();
    losses[1].backward();
    expect_gradients(net, mean_of<Net>({{Kind::kBoth, 2}}, group.size()));
    losses[0].backward({}, /*retain_graph=*/true);
    expect_gradients(net, mean_of<Net>({{Kind::kBoth, 2}, {Kind::kBoth, 1}}, group.size()));
    kind_loss(Kind::kOutput, net, model, batch(rank, 4)).backward();
    losses[0].backward();
    losses[2].backward();
    std::vector<Part> all{{Kind::kOutput, 4}};
    for (const int salt : {1, 1, 2, 3}) all.push_back({Kind::kBoth, salt});
    expect_gradients(net, mean_of<Net>(all, group.size()));
  });
}

TEST_CASE_METHOD(NoSync, "NoSync: a backward of a forward inside and one outside is reduced") {
  run([&]<typename Net>(auto& model, Net& net, const GroupHandle& group) {
    const int rank = group.rank();
    for (const bool backward_inside : {true, false}) {
      for (const bool inside_first : {true, false}) {
        net->zero_grad();
        torch::Tensor outside;
        if (!inside_first) outside = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
        std::optional<NoSyncGuard> guard(model->no_sync());
        const auto inside = kind_loss(Kind::kBoth, net, model, batch(rank, 2));
        guard.reset();
        if (inside_first) outside = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
        if (backward_inside) guard.emplace(model->no_sync());
        (inside + outside).backward();
        expect_gradients(net, mean_of<Net>({{Kind::kBoth, 1}, {Kind::kBoth, 2}}, group.size()));
      }
    }
  });
}

TEST_CASE_METHOD(NoSync, "NoSync: what belongs to no forward stays local under it while another forward waits") {
  run([&]<typename Net>(auto& model, Net& net, const GroupHandle& group) {
    const int rank = group.rank();
    const auto waiting = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
    {
      const auto guard = model->no_sync();
      add_alone(net, {{Kind::kOutput, 2}}, rank);  // past the wrapper
      expect_gradients(net, local_of<Net>({{Kind::kOutput, 2}}, rank));
      net->first->weight.square().sum().backward();  // a penalty on the weights
    }
    LossGradients expected = local_of<Net>({{Kind::kOutput, 2}}, rank);
    expected[0] = expected[0] + 2 * net->first->weight.detach();
    expect_gradients(net, expected);
    waiting.backward();
    expected = mean_of<Net>({{Kind::kBoth, 1}, {Kind::kOutput, 2}}, group.size());
    expected[0] = expected[0] + 2 * net->first->weight.detach();
    expect_gradients(net, expected);
  });
}

// Its collective would have no partner.
TEST_CASE_METHOD(NoSync, "NoSync: one rank alone may have a backward under it while forwards wait") {
  run([&]<typename Net>(auto& model, Net& net, const GroupHandle& group) {
    const int rank = group.rank();
    const auto waiting = kind_loss(Kind::kBoth, net, model, batch(rank, 1));
    if (rank == 0) {
      const auto guard = model->no_sync();
      for (const Kind kind : kKinds) kind_loss(kind, net, model, batch(rank, 2)).backward();
    }
    waiting.backward();
    const LossGradients expected = test::mean_gradients<Net>(7, group.size(), [](Net& alone, int which) {
      add_alone(alone, {{Kind::kBoth, 1}}, which);
      if (which != 0) return;
      for (const Kind kind : kKinds) add_alone(alone, {{kind, 2}}, which);
    });
    expect_gradients(net, expected);
  });
}

// The node of its output is followed by those of leaves alone, which belong to every forward.
struct OneOperatorImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x * scale; }
  torch::Tensor scale = register_parameter("scale", torch::ones({4}));
};
TORCH_MODULE(OneOperator);

TEST_CASE_METHOD(NoSync, "NoSync: a model of one operator") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              auto net = make<OneOperator>(7);
              DistributedDataParallel<OneOperator> model(net, group);
              const auto x = [&](int rank, int salt) { return numbers({4}, rank + 10 * salt); };
              const auto mean_of_x = [&](int salt) {
                torch::Tensor sum = x(0, salt);
                for (int rank = 1; rank < group.size(); ++rank) sum = sum + x(rank, salt);
                return sum / group.size();
              };
              for (int step = 0; step < 3; ++step) {
                net->zero_grad();
                const auto waiting = model(x(group.rank(), 1));
                const auto second = model(x(group.rank(), 2)).sum();
                {
                  const auto guard = model->no_sync();
                  model(x(group.rank(), 3)).sum().backward();
                  expect_close(net->scale.grad(), x(group.rank(), 3));
                  model(x(group.rank(), 3)).backward(torch::ones_like(net->scale));
                  const auto data = x(group.rank(), 4).requires_grad_();
                  const auto slope =
                      torch::autograd::grad({model(data).sum()}, {data}, {}, std::nullopt, /*create_graph=*/true)[0];
                  slope.square().sum().backward();
                  expect_close(net->scale.grad(), 2 * x(group.rank(), 3) + 2 * net->scale.detach());
                  second.backward();
                  expect_close(net->scale.grad(), 2 * mean_of_x(3) + 2 * net->scale.detach() + mean_of_x(2));
                }
                waiting.backward(torch::ones_like(net->scale));
                expect_close(net->scale.grad(),
                             2 * mean_of_x(3) + 2 * net->scale.detach() + mean_of_x(2) + mean_of_x(1));
              }
            },
            {.wire = wire_});
}

// The gradients of its last layer come in a backward within the backward, whose graph has nothing of the forward.
struct RunsLastAgainImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return test::Again::apply(torch::tanh(first(x)), second.get()); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 5));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(5, 2));
};
TORCH_MODULE(RunsLastAgain);

TEST_CASE_METHOD(NoSync, "NoSync: a layer that runs again in backward") {
  const auto alone = [](const std::vector<int>& salts) {
    return [salts](RunsLastAgain& net, int rank) {
      for (const int salt : salts) net->forward(batch(rank, salt)).square().sum().backward();
    };
  };
  run_with<RunsLastAgain>(
      [&](auto& model, RunsLastAgain& net, const GroupHandle& group) {
        const int rank = group.rank();
        const auto waiting = model(batch(rank, 1)).square().sum();
        {
          const auto guard = model->no_sync();
          model(batch(rank, 2)).square().sum().backward();
        }
        expect_gradients(net, test::mean_gradients<RunsLastAgain>(
                                  7, 1, [&](RunsLastAgain& net, int /*rank*/) { alone({2})(net, rank); }));
        waiting.backward();
        expect_gradients(net, test::mean_gradients<RunsLastAgain>(7, group.size(), alone({1, 2})));
      },
      /*is_hidden=*/true);
}

}  // namespace
}  // namespace ddp
