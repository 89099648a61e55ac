// DataParallel: copies of a model in threads, on the CPU or on simulated devices, against one process that works
// through the same pieces.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ddprun/ddp/data_parallel.h>
#include <ddprun/detail/ddp/scatter_gather.h>
#include <ddprun/recompute/recompute.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/placement.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::EqualsTensor;
using test::error_of;
using test::here;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", Linear(3, 8));
    norm = register_module("norm", BatchNorm1d(8));
    last = register_module("last", Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    {
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      if (threads != nullptr) threads->insert(std::this_thread::get_id());
    }
    if (x.size(0) == fail_at_rows) throw std::out_of_range("this many rows");
    const auto block = [this](const at::Tensor& y) { return norm(first(y)).relu_(); };
    return last(has_region ? checkpoint({.update_buffers_once = {norm.ptr()}}, block, x) : block(x));
  }
  Linear first{nullptr}, last{nullptr};
  BatchNorm1d norm{nullptr};
  std::set<std::thread::id>* threads = nullptr;
  int64_t fail_at_rows = -1;
  bool has_region = false;
};
TORCH_MODULE(Net);

// Copies on the CPU, or on as many devices.
DataParallelOptions copies(int count) {
  if (!test::is_on_devices()) return {.replicas = count};
  DataParallelOptions options;
  for (int index = 0; index < count; ++index) options.device_ids.push_back(index);
  return options;
}

std::vector<c10::Device> devices_for(int count) {
  std::vector<c10::Device> devices(static_cast<size_t>(count), test::test_device());
  for (int index = 0; index < count; ++index) {
    if (test::is_on_devices()) devices[static_cast<size_t>(index)].set_index(static_cast<c10::DeviceIndex>(index));
  }
  return devices;
}

Net make_net() {
  at::manual_seed(1);
  return test::placed(Net());
}

std::vector<at::Tensor> gradients_of(const torch::nn::Module& net) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  INFO(what);
  REQUIRE(actual.defined() == expected.defined());
  if (!actual.defined()) return;
  REQUIRE(actual.sizes() == expected.sizes());
  INFO(what << "\n" << actual << "\nexpected\n" << expected);
  CHECK_THAT(actual, test::IsCloseTo(expected, 1e-5, 1e-6));
}

// One process and the pieces one after the other; statistics are those of the first piece.
at::Tensor reference_forward(Net& net, const at::Tensor& x, int64_t pieces) {
  std::vector<at::Tensor> outputs;
  at::Tensor mean = net->norm->running_mean.data();  // its changes here are none that autograd has to notice
  at::Tensor var = net->norm->running_var.data();
  const at::Tensor before_mean = mean.clone();
  const at::Tensor before_var = var.clone();
  at::Tensor after_mean;
  at::Tensor after_var;
  for (const at::Tensor& piece : x.chunk(pieces)) {
    mean.copy_(before_mean);
    var.copy_(before_var);
    outputs.push_back(net(piece));
    if (after_mean.defined()) continue;
    after_mean = mean.clone();
    after_var = var.clone();
  }
  mean.copy_(after_mean);
  var.copy_(after_var);
  return at::cat(outputs);
}

class Replicated {
 protected:
  const int replicas_ = GENERATE(1, 2, 3, 4);
  FIXTURE_INFO("replicas: " << replicas_);
};
TEST_CASE_METHOD(Replicated, "Replicated: training equals one process over the pieces") {
  Net net = make_net();
  Net alone = make_net();
  DataParallel<Net> model(net, copies(replicas_));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::optim::SGD reference(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = at::sin(here(at::arange(24, at::kFloat)) * (1.7F + static_cast<float>(step))).view({8, 3});
    optimizer.zero_grad();
    reference.zero_grad();
    const at::Tensor loss = model(x).square().mean();
    const at::Tensor expected = reference_forward(alone, x, replicas_).square().mean();
    expect_close(loss, expected, "loss of step " + std::to_string(step));
    loss.backward();
    expected.backward();
    const auto gradients = gradients_of(*net);
    for (size_t i = 0; i < gradients.size(); ++i) {
      expect_close(gradients[i], gradients_of(*alone)[i], "gradient " + std::to_string(i));
    }
    optimizer.step();
    reference.step();
    expect_close(net->norm->running_mean, alone->norm->running_mean, "running_mean");
    expect_close(net->norm->running_var, alone->norm->running_var, "running_var");
    CHECK(net->norm->num_batches_tracked.item<int64_t>() == step + 1);
  }
  net->eval();
  alone->eval();
  const at::Tensor x = here(at::ones({7, 3}));
  expect_close(model(x), alone(x), "eval");
}

TEST_CASE_METHOD(Replicated, "Replicated: gradients accumulate over backwards and survive two forwards before one") {
  Net net = make_net();
  Net alone = make_net();
  DataParallel<Net> model(net, copies(replicas_));
  const at::Tensor a = at::sin(here(at::arange(24, at::kFloat))).view({8, 3});
  const at::Tensor b = at::cos(here(at::arange(24, at::kFloat))).view({8, 3});
  const at::Tensor first = model(a).sum();
  const at::Tensor second = model(b).square().sum();
  (first + second).backward();
  model(a).square().sum().backward();
  const at::Tensor first_alone = reference_forward(alone, a, replicas_).sum();
  const at::Tensor second_alone = reference_forward(alone, b, replicas_).square().sum();
  (first_alone + second_alone).backward();
  reference_forward(alone, a, replicas_).square().sum().backward();
  for (size_t i = 0; i < gradients_of(*net).size(); ++i) {
    expect_close(gradients_of(*net)[i], gradients_of(*alone)[i], "gradient " + std::to_string(i));
  }
}

TEST_CASE_METHOD(Replicated, "Replicated: regions of activation checkpointing give the gradients without them") {
  const auto gradients = [&](bool has_regions) {
    Net net = make_net();
    net->has_region = has_regions;
    DataParallel<Net> model(net, copies(replicas_));
    at::Tensor x = at::sin(here(at::arange(24, at::kFloat))).view({8, 3}).requires_grad_();
    for (int step = 0; step < 3; ++step) {
      const at::Tensor first = model(x);
      (first * model(x.sin())).sum().backward();  // the copies' weights are set again before the first one's backward
    }
    auto all = gradients_of(*net);
    all.push_back(x.grad());
    all.push_back(net->norm->running_mean);
    return all;
  };
  const auto with = gradients(true);
  const auto without = gradients(false);
  for (size_t i = 0; i < with.size(); ++i) {
    // The threads of devices add up two forwards' gradients in any order, also without regions.
    if (test::is_on_devices()) {
      expect_close(with[i], without[i], "gradient " + std::to_string(i));
    } else {
      CHECK_THAT(with[i], EqualsTensor(without[i]));
    }
  }
}
TEST_CASE("DataParallel: each piece runs in a thread of its own and threads stay") {
  std::set<std::thread::id> threads;
  Net net = make_net();
  net->threads = &threads;
  DataParallel<Net> model(net, copies(3));
  for (int step = 0; step < 4; ++step) model(here(at::ones({6, 3})));
  CHECK(threads.size() == 3U);
  CHECK(threads.contains(std::this_thread::get_id()));
}

TEST_CASE("DataParallel: batches smaller than the number of copies use fewer") {
  Net net = make_net();
  net->eval();
  DataParallel<Net> model(net, copies(4));
  for (const int64_t rows : {1, 2, 3, 5, 9}) {
    const at::Tensor x = at::sin(here(at::arange(rows * 3, at::kFloat))).view({rows, 3});
    expect_close(model(x), net(x), std::to_string(rows) + " rows");
  }
  CHECK(model(here(at::ones({0, 3}))).sizes() == std::vector<int64_t>{0, 2});
}

TEST_CASE("DataParallel: gradients reach inputs and autograd grad") {
  Net net = make_net();
  net->eval();
  DataParallel<Net> model(net, copies(2));
  const at::Tensor x = at::sin(here(at::arange(12, at::kFloat))).view({4, 3}).requires_grad_(true);
  std::vector<at::Tensor> inputs = net->parameters();
  inputs.push_back(x);
  const auto split = torch::autograd::grad({model(x).square().sum()}, inputs);
  const auto whole = torch::autograd::grad({net(x).square().sum()}, inputs);
  for (size_t i = 0; i < split.size(); ++i) expect_close(split[i], whole[i], "input " + std::to_string(i));
  // Gradients of gradients.
  const auto first = torch::autograd::grad({model(x).square().sum()}, {x}, {}, {}, /*create_graph=*/true);
  const auto second = torch::autograd::grad({first[0].square().sum()}, {net->first->weight});
  const auto first_whole = torch::autograd::grad({net(x).square().sum()}, {x}, {}, {}, /*create_graph=*/true);
  const auto second_whole = torch::autograd::grad({first_whole[0].square().sum()}, {net->first->weight});
  expect_close(second[0], second_whole[0], "second derivative");
}

TEST_CASE("DataParallel: follows changes of the model between forwards") {
  Net net = make_net();
  DataParallel<Net> model(net, copies(2));
  const at::Tensor x = at::sin(here(at::arange(12, at::kFloat))).view({4, 3});
  model(x);
  net->eval();
  expect_close(model(x), net(x), "eval mode");
  net->first->weight.requires_grad_(false);
  model(x).sum().backward();
  UNSCOPED_INFO("frozen");
  CHECK_FALSE(net->first->weight.grad().defined());
  CHECK(net->first->bias.grad().defined());
  {
    const at::NoGradGuard no_grad;
    net->last->weight.mul_(2);
    net->norm->running_mean.add_(0.5);
  }
  expect_close(model(x), net(x), "values changed in place");
  net->last->weight.set_data(here(at::ones({2, 8})));
  expect_close(model(x), net(x), "values replaced");
  net->to(at::kDouble);
  expect_close(model(x.to(at::kDouble)), net(x.to(at::kDouble)), "another dtype");
  const at::NoGradGuard no_grad;
  INFO("the caller's grad mode reaches the threads");
  CHECK_FALSE(model(x.to(at::kDouble)).requires_grad());
}

TEST_CASE("DataParallel: makes copies without drawing from the programs generator") {
  Net net = make_net();
  DataParallel<Net> model(net, copies(3));
  at::manual_seed(7);
  const at::Tensor expected = here(at::rand({4}));
  at::manual_seed(7);
  model(here(at::ones({6, 3})));
  CHECK(at::equal(here(at::rand({4})), expected));
}

TEST_CASE("DataParallel: a failing forward names its copy and keeps the cause") {
  Net net = make_net();
  net->fail_at_rows = 2;  // the copies have it too; 8 rows are cut into 3, 3, 2
  DataParallel<Net> model(net, copies(3));
  try {
    model(here(at::ones({8, 3})));
    FAIL();
  } catch (const std::runtime_error& error) {
    CHECK_THAT(error.what(),
               ContainsSubstring("DataParallel: replica 2 on " + devices_for(3)[2].str() + ": this many rows"));
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
  }
  INFO("usable afterwards");
  CHECK(model(here(at::ones({9, 3}))).size(0) == 9);
}

struct PlainImpl : torch::nn::Module {
  PlainImpl() { linear = register_module("linear", Linear(3, 2)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  Linear linear{nullptr};
};
TORCH_MODULE(Plain);

TEST_CASE("DataParallel: models that cannot be cloned say what to do") {
  Plain net = test::placed(Plain());
  DataParallel<Plain> model(net, copies(2));
  CHECK_THROWS_MATCHES(model(here(at::ones({4, 3}))), std::runtime_error,
                       MessageMatches(ContainsSubstring("DataParallel: the model cannot be copied") &&
                                      ContainsSubstring("torch::nn::Cloneable") && ContainsSubstring("make_replica")));
  DataParallelOptions options = copies(2);
  options.make_replica = [] { return std::make_shared<PlainImpl>(); };
  DataParallel<Plain> made(net, options);
  const at::Tensor x = at::sin(here(at::arange(12, at::kFloat))).view({4, 3});
  expect_close(made(x), net(x), "copies from make_replica");
}

TEST_CASE("DataParallel: cannot be cloned, but the model in it can") {
  Plain net = test::placed(Plain());
  DataParallel<Plain> model(net, copies(2));
  CHECK_THROWS_MATCHES(model->clone(), std::logic_error,
                       MessageMatches(ContainsSubstring("DataParallel is a wrapper and cannot be cloned")));
}

struct StructuredImpl : torch::nn::Cloneable<StructuredImpl> {
  StructuredImpl() { reset(); }
  void reset() override { linear = register_module("linear", Linear(3, 2)); }
  std::tuple<at::Tensor, std::map<std::string, at::Tensor>, std::vector<at::Tensor>> forward(
      const std::vector<at::Tensor>& xs, const std::optional<at::Tensor>& offset, double factor) {
    const at::Tensor y = linear(xs.at(0) + xs.at(1)) * factor + (offset ? *offset : here(at::zeros({})));
    return {y.sum(), {{"y", y}}, {y + 1, y + 2}};
  }
  Linear linear{nullptr};
};
TORCH_MODULE(Structured);

TEST_CASE("DataParallel: arguments and results may be structured") {
  Structured net = test::placed(Structured());
  DataParallel<Structured> model(net, copies(2));
  const at::Tensor x = at::sin(here(at::arange(12, at::kFloat))).view({4, 3});
  const std::vector<at::Tensor> xs{x, x + 1};
  for (const auto& offset : {std::optional<at::Tensor>(), std::optional<at::Tensor>(here(at::full({}, 3.0F)))}) {
    const auto [sums, named, list] = model(xs, offset, 0.5);
    const auto [sum, named_whole, list_whole] = net(xs, offset, 0.5);
    INFO("a number per piece");
    CHECK(sums.sizes() == std::vector<int64_t>{2});
    expect_close(sums.sum(), sum, "sum");
    expect_close(named.at("y"), named_whole.at("y"), "map");
    expect_close(list.at(1), list_whole.at(1), "list");
  }
  const std::vector<at::Tensor> uneven{x, here(at::ones({1, 3}))};
  CHECK_THROWS_MATCHES(model(uneven, std::nullopt, 1.0), std::invalid_argument,
                       MessageMatches(ContainsSubstring("one has 4 rows and another 1")));
}

TEST_CASE("Scatter and gather: pieces are chunks of every tensor and make the value again") {
  using Value = std::tuple<at::Tensor, std::vector<at::Tensor>, std::map<std::string, at::Tensor>>;
  const std::vector<c10::Device> devices = devices_for(3);
  at::Tensor x = here(at::arange(20, at::kFloat)).view({5, 4});
  x.set_requires_grad(true);
  const Value value{x, {x * 2}, {{"x", x + 1}}};
  const auto pieces = parallel::scatter(value, devices);
  REQUIRE(pieces.size() == 3);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [tensor, list, named] = pieces[i];
    CHECK_THAT(tensor, EqualsTensor(x.chunk(3)[i]));
    CHECK_THAT(list.at(0), EqualsTensor((x * 2).chunk(3)[i]));
    CHECK_THAT(named.at("x"), EqualsTensor((x + 1).chunk(3)[i]));
  }
  const auto [tensor, list, named] = parallel::gather(pieces, devices[0]);
  CHECK(tensor.equal(x));
  CHECK(list.at(0).equal(x * 2));
  CHECK(named.at("x").equal(x + 1));
  tensor.sum().backward();
  CHECK(x.grad().equal(here(at::ones({5, 4}))));
}

TEST_CASE("Scatter and gather: other dimensions, numbers and what cannot be cut") {
  const std::vector<c10::Device> devices = devices_for(2);
  const at::Tensor x = here(at::arange(6, at::kFloat)).view({2, 3});
  CHECK_THAT(parallel::scatter(x, devices, 1).at(1), EqualsTensor(x.narrow(1, 2, 1)));
  CHECK(parallel::gather(parallel::scatter(x, devices, 1), devices[0], 1).equal(x));
  CHECK(parallel::scatter(7, devices) == std::vector<int>{7});
  CHECK(parallel::gather(std::vector{here(at::full({}, 1.0F)), here(at::full({}, 2.0F)).to(devices[1])}, devices[0])
            .sizes() == std::vector<int64_t>{2});
  CHECK_THROWS_MATCHES(parallel::scatter(x, {}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("at least one device")));
  CHECK_THROWS_MATCHES(parallel::gather(std::vector<at::Tensor>{}, devices[0]), std::invalid_argument,
                       MessageMatches(ContainsSubstring("at least one result")));
}

TEST_CASE("DataParallel: contradicting options are refused") {
  Net net = make_net();
  const auto refusal = [&](const DataParallelOptions& options) {
    return error_of<std::invalid_argument>([&] { DataParallel<Net> model(net, options); });
  };
  CHECK_THAT(refusal({.replicas = -1}), ContainsSubstring("replicas must be at least 0"));
  CHECK_THAT(refusal({.device_ids = {0}, .replicas = 2}), ContainsSubstring("replicas applies to the CPU"));
  CHECK_THAT(refusal({.device_ids = {1000}}), ContainsSubstring("CUDA device 1000 does not exist"));
  CHECK_THROWS_MATCHES([] { DataParallel<Net> model(Net(nullptr), {.replicas = 2}); }(), std::invalid_argument,
                       MessageMatches(ContainsSubstring("empty module holder")));
}

TEST_CASE("DataParallelOnCpu: without a GPU the model is called as it is") {
  Net net = make_net();
  DataParallel<Net> model(net);  // this test runs with CUDA_VISIBLE_DEVICES empty
  CHECK(model->devices().empty());
  const at::Tensor x = here(at::ones({4, 3}));
  model(x).sum().backward();
  CHECK(net->first->weight.grad().defined());
}

}  // namespace
}  // namespace ddp
