// The wrapped model stays an ordinary module: it can be cloned, saved, loaded and switched between train and eval.
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <functional>
#include <memory>
#include <sstream>

#include <ddprun/comm/any_module_ref.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/wrapped_parameters.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using test::expect_equal;
using test::make;
using test::numbers;
using test::run_ranks;
using test::Wire;

struct NormedImpl : torch::nn::Cloneable<NormedImpl> {
  NormedImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    second = register_module("second", torch::nn::Linear(8, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }

  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear second{nullptr};
};
TORCH_MODULE(Normed);

using Wrapped = DistributedDataParallel<Normed>;

void train(Wrapped& model, const GroupHandle& group, int first_step, int steps) {
  torch::optim::SGD optimizer(model->module()->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = first_step; step < first_step + steps; ++step) {
    optimizer.zero_grad();
    model(numbers({4, 6}, group.rank() + 10 * step)).square().mean().backward();
    optimizer.step();
  }
}

void expect_equal_models(torch::nn::Module& actual, torch::nn::Module& expected) {
  for (const auto& item : expected.named_parameters()) {
    expect_equal(actual.named_parameters()[item.key()], item.value());
  }
  for (const auto& item : expected.named_buffers()) expect_equal(actual.named_buffers()[item.key()], item.value());
}

class Module : protected test::EveryWire {
 protected:
  void run(const std::function<void(const GroupHandle&)>& body) { run_ranks(2, body, {.wire = wire_}); }
};

TEST_CASE_METHOD(Module, "Module: a clone of the wrapped model is unwrapped and trains on alike when wrapped anew") {
  run([](const GroupHandle& group) {
    auto net = make<Normed>(1);
    Wrapped model(net, group);
    train(model, group, 0, 3);
    const auto before = net->first->weight.detach().clone();

    const auto clone = std::dynamic_pointer_cast<NormedImpl>(model->module()->clone());
    RANK_CHECK(is_wrapped(*net));
    RANK_CHECK_FALSE(is_wrapped(*clone));
    expect_equal_models(*clone, *net);
    RANK_CHECK_FALSE(clone->first->weight.is_alias_of(net->first->weight));

    // Each wrapper's forward takes the buffers of rank 0 first, so the two go on from the same state.
    train(model, group, 3, 2);
    expect_equal(clone->first->weight, before);
    Normed second(clone);
    Wrapped other(second, group);
    train(other, group, 3, 2);
    expect_equal_models(*second, *net);
    RANK_CHECK_FALSE(torch::equal(net->first->weight, before));
  });
}

TEST_CASE_METHOD(Module, "Module: what is saved has plain names and loads into wrapped and plain models") {
  run([](const GroupHandle& group) {
    auto net = make<Normed>(1);
    Wrapped model(net, group);
    train(model, group, 0, 3);
    std::stringstream file;
    torch::save(model->module(), file);

    auto plain = make<Normed>(2);
    torch::load(plain, file);
    expect_equal_models(*plain, *net);
    RANK_CHECK(plain->named_parameters().keys().front() == "first.weight");
    RANK_CHECK(model->named_parameters().keys().front() == "module.first.weight");

    train(model, group, 3, 2);
    const auto expected = net->first->weight.detach().clone();
    file.seekg(0);
    torch::load(net, file);  // back to where it was saved, with the wrapper in place
    expect_equal_models(*net, *plain);
    train(model, group, 3, 2);
    expect_equal(net->first->weight, expected);
  });
}

// Held as LibTorch's own examples do, without TORCH_MODULE.
struct Plain : torch::nn::Module {
  Plain() : linear(register_module("linear", torch::nn::Linear(6, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return linear(x); }
  torch::nn::Linear linear;
};

template <typename Model>
void expect_averaged_gradients(Model& model, const Plain& net, const GroupHandle& group) {
  model(numbers({4, 6}, group.rank())).square().mean().backward();
  const auto gradients = all_gather(net.linear->weight.grad(), group);
  expect_equal(gradients[0], gradients[1]);
  RANK_CHECK(model->named_parameters().keys().front() == "module.linear.weight");
}

TEST_CASE_METHOD(Module, "Module: plain modules and shared pointers are wrapped too") {
  run([](const GroupHandle& group) {
    auto shared = test::placed(std::make_shared<Plain>());
    {
      DistributedDataParallel<Plain> model(shared, group);
      expect_averaged_gradients(model, *shared, group);
      RANK_CHECK(model->module() == shared);
    }
    {
      DistributedDataParallel<std::shared_ptr<Plain>> model(shared, group);
      expect_averaged_gradients(model, *shared, group);
    }
    {
      DistributedDataParallel model(shared, group);
      expect_averaged_gradients(model, *shared, group);
    }
    Plain net;
    net.to(test::test_device());
    {
      DistributedDataParallel<Plain> model(net, group);
      expect_averaged_gradients(model, net, group);
      RANK_CHECK(model->module().get() == &net);
      model->eval();
      RANK_CHECK_FALSE(net.linear->is_training());
    }
    DistributedDataParallel model(net, group, DdpOptions{});
    expect_averaged_gradients(model, net, group);
  });
}

TEST_CASE_METHOD(Module, "Module: the wrapped model can be given to whatever loads into a module") {
  run([](const GroupHandle& group) {
    auto net = make<Normed>(1);
    Wrapped model(net, group);
    const Wrapped& unchanged = model;
    RANK_CHECK(&AnyModuleRef(model->module()).get() == net.get());
    RANK_CHECK(&AnyModuleRef(unchanged->module()).get() == net.get());
    RANK_CHECK(&AnyModuleRef(model->module().ptr()).get() == net.get());
    const auto shared = test::placed(std::make_shared<Plain>());
    RANK_CHECK(&AnyModuleRef(shared).get() == shared.get());
    RANK_CHECK(&AnyModuleRef(*shared).get() == shared.get());
  });
}

TEST_CASE_METHOD(Module, "Module: train and eval reach the model and evaluation in between changes nothing") {
  run([](const GroupHandle& group) {
    auto net = make<Normed>(1);
    auto undisturbed_net = make<Normed>(1);
    Wrapped model(net, group);
    Wrapped undisturbed(undisturbed_net, group);
    for (int step = 0; step < 4; ++step) {
      train(model, group, step, 1);
      train(undisturbed, group, step, 1);
      model->eval();
      RANK_CHECK_FALSE(net->norm->is_training());
      {
        const torch::NoGradGuard no_grad;
        const auto tracked = net->norm->num_batches_tracked.clone();
        const auto x = numbers({4, 6}, 99);
        const auto outputs = all_gather(model(x), group);
        expect_equal(outputs[0], outputs[1]);  // the buffers are rank 0's by now
        expect_equal(net->norm->num_batches_tracked, tracked);
      }
      model->train();
      RANK_CHECK(net->norm->is_training());
    }
    for (const auto& item : undisturbed_net->named_parameters()) {
      expect_equal(net->named_parameters()[item.key()], item.value());
    }
  });
}

}  // namespace
}  // namespace ddp
