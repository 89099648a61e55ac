// The fused optimizers follow torch::optim's and exchange states with them; scaled steps, layouts, errors. Bits are
// compared with Python's in steps_test.py.
#include <ATen/record_function.h>
#include <torch/serialize.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/optim/clip_grad.h>
#include <ddprun/optim/larc.h>
#include <ddprun/optim/optimizers.h>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"

namespace ddp::optim {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::expect_near;
using test::expect_same_bits;
using test::flag;
using test::here;
using test::new_parameters;
using test::numbers;
using test::set_gradients;

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

void train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
}

template <typename Ours, typename Options, typename Torchs>
struct Pair {
  using Our = Ours;
  using OurOptions = Options;
  using Torch = Torchs;
};

using SgdPair = Pair<SGD, SGDOptions, torch::optim::SGD>;
using AdamPair = Pair<Adam, AdamOptions, torch::optim::Adam>;
using AdamWPair = Pair<AdamW, AdamWOptions, torch::optim::AdamW>;
using AdagradPair = Pair<Adagrad, AdagradOptions, torch::optim::Adagrad>;
using Pairs = std::tuple<SgdPair, AdamPair, AdamWPair, AdagradPair>;

std::vector<torch::optim::SGDOptions> variants(const SgdPair&) {
  using Options = torch::optim::SGDOptions;
  return {Options(0.1), Options(0.1).momentum(0.9), Options(0.1).momentum(0.9).dampening(0.2).weight_decay(0.01),
          Options(0.1).momentum(0.9).nesterov(true).weight_decay(0.1)};
}
template <typename Options>
std::vector<Options> adam_variants() {
  return {Options(0.01), Options(0.01).betas({0.8, 0.9}).eps(1e-5).weight_decay(0.1), Options(0.01).amsgrad(true)};
}
std::vector<torch::optim::AdamOptions> variants(const AdamPair&) {
  return adam_variants<torch::optim::AdamOptions>();
}
std::vector<torch::optim::AdamWOptions> variants(const AdamWPair&) {
  return adam_variants<torch::optim::AdamWOptions>();
}
std::vector<torch::optim::AdagradOptions> variants(const AdagradPair&) {
  using Options = torch::optim::AdagradOptions;
  return {Options(0.1), Options(0.1).lr_decay(0.01).weight_decay(0.1).initial_accumulator_value(0.3).eps(1e-6)};
}

TEMPLATE_LIST_TEST_CASE("Optimizers: stay within a millionth of torch's over 100 steps", "", Pairs) {
  for (const auto& options : variants(TestType{})) {
    const auto ours = new_parameters();
    const auto theirs = new_parameters();
    typename TestType::Our our_optimizer(ours, options);
    typename TestType::Torch their_optimizer(theirs, options);
    train(our_optimizer, ours, 0, 100);
    train(their_optimizer, theirs, 0, 100);
    expect_near(ours, theirs);
  }
}

// The state goes ours → LibTorch's → ours, with steps between.
TEMPLATE_LIST_TEST_CASE("Optimizers: states move to torch's and back", "", Pairs) {
  for (const auto& options : variants(TestType{})) {
    const auto straight = new_parameters();
    typename TestType::Our alone(straight, options);
    train(alone, straight, 0, 30);

    const auto parameters = new_parameters();
    std::stringstream first_archive, second_archive;
    {
      typename TestType::Our optimizer(parameters, options);
      train(optimizer, parameters, 0, 10);
      optimizer.param_groups()[0].options().set_lr(options.lr());
      torch::save(optimizer, first_archive);
    }
    {
      typename TestType::Torch optimizer(parameters, decltype(options)(123.0));
      torch::load(optimizer, first_archive);
      train(optimizer, parameters, 10, 10);
      torch::save(optimizer, second_archive);
    }
    typename TestType::Our optimizer(parameters, decltype(options)(321.0));
    torch::load(optimizer, second_archive);
    CHECK(optimizer.param_groups()[0].options().get_lr() == options.lr());
    train(optimizer, parameters, 20, 10);
    expect_near(parameters, straight);
  }
}

TEMPLATE_LIST_TEST_CASE("Optimizers: own archives keep every bit and maximize", "", Pairs) {
  const auto straight = new_parameters();
  const auto parameters = new_parameters();
  const auto options = variants(TestType{}).back();
  typename TestType::Our alone(straight, options);
  typename TestType::Our before(parameters, options);
  dynamic_cast<MaximizeOption&>(alone.param_groups()[0].options()).maximize() = true;
  dynamic_cast<MaximizeOption&>(before.param_groups()[0].options()).maximize() = true;
  train(alone, straight, 0, 10);
  train(before, parameters, 0, 5);
  std::stringstream archive;
  torch::save(before, archive);
  typename TestType::Our after(parameters, decltype(options)(9.0));
  torch::load(after, archive);
  train(after, parameters, 5, 5);
  expect_same_bits(parameters, straight);
}

TEMPLATE_LIST_TEST_CASE("Optimizers: a step with found_inf changes nothing", "", Pairs) {
  for (const auto& options : variants(TestType{})) {
    const auto parameters = new_parameters();
    typename TestType::Our optimizer(parameters, options);
    train(optimizer, parameters, 0, 3);
    const auto values = copies(parameters);
    std::vector<StateTensors> states;
    for (const auto& parameter : parameters) {
      states.push_back(optimizer.parameter_state(parameter));
      for (auto& [name, tensor] : states.back()) tensor = tensor.clone();
    }
    set_gradients(parameters, 3, std::numeric_limits<double>::infinity());
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters) gradients.push_back(parameter.grad().clone());
    // A flag that was added over two devices or ranks is 2.
    for (const double found : {1.0, 2.0}) optimizer.step_scaled({.grad_scale = flag(8), .found_inf = flag(found)});
    expect_same_bits(parameters, values);
    for (size_t i = 0; i < parameters.size(); ++i) {
      CHECK(parameters[i].grad().equal(gradients[i]));
      const auto state = optimizer.parameter_state(parameters[i]);
      for (const auto& [name, tensor] : states[i]) {
        UNSCOPED_INFO(name);
        CHECK(state.at(name).equal(tensor));
      }
      CHECK((state.contains("step") ? state.at("step").template item<float>() : 3) == 3);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("Optimizers: scaled gradients are divided and left so", "", Pairs) {
  const auto options = variants(TestType{}).back();
  const auto scaled = new_parameters();
  const auto plain = new_parameters();
  typename TestType::Our scaled_optimizer(scaled, options);
  typename TestType::Our plain_optimizer(plain, options);
  for (int step = 0; step < 5; ++step) {
    set_gradients(scaled, step, 1024);
    scaled_optimizer.step_scaled({.grad_scale = flag(1024).reshape({1}), .found_inf = flag(0)});
    set_gradients(plain, step);
    plain_optimizer.step();
    for (size_t i = 0; i < plain.size(); ++i) CHECK(scaled[i].grad().equal(plain[i].grad()));
  }
  expect_same_bits(scaled, plain);
}

// The kernels walk memory in order: other layouts must not mix elements up.
TEMPLATE_LIST_TEST_CASE("Optimizers: memory layouts make no difference", "", Pairs) {
  const auto options = variants(TestType{}).back();
  const auto expected = numbers({4, 3, 5, 5}, 1).requires_grad_();
  const auto channels_last = expected.detach().contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const auto strided = here(at::zeros({4, 3, 5, 10})).slice(3, 0, 10, 2).copy_(expected.detach()).requires_grad_();
  typename TestType::Our one({expected}, options), two({channels_last}, options), three({strided}, options);
  for (int step = 0; step < 4; ++step) {
    const auto gradient = numbers({4, 3, 5, 5}, 50 + step);
    expected.mutable_grad() = gradient.clone();
    channels_last.mutable_grad() = gradient.clone();
    strided.mutable_grad() =
        step % 2 ? gradient.clone() : gradient.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0});
    for (auto* optimizer : {&one, &two, &three}) optimizer->step_scaled({.grad_scale = flag(2)});
    CHECK(strided.grad().equal(expected.grad()));
  }
  CHECK(channels_last.is_contiguous(at::MemoryFormat::ChannelsLast));
  expect_same_bits({channels_last.contiguous(), strided.contiguous()}, {expected, expected});
}

TEMPLATE_LIST_TEST_CASE("Optimizers: bad options give Python's message and the rank", "", Pairs) {
  const auto options = variants(TestType{}).front();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [lr, text] :
       {std::pair(-1.0, "Invalid learning rate: -1.0"), std::pair(nan, "Invalid learning rate: nan"),
        std::pair(1 / 0.0, "Invalid learning rate: inf")}) {
    auto bad = options;
    bad.lr(lr);
    const auto names_rank = ContainsSubstring("rank 0 of 1"), says = ContainsSubstring(text);
    CHECK_THROWS_MATCHES(typename TestType::Our(new_parameters(), bad), std::invalid_argument,
                         MessageMatches(names_rank && says));
    if (lr < 0) continue;
    // Set later, as schedules do: the step refuses, and nothing has moved.
    const auto parameters = new_parameters();
    typename TestType::Our optimizer(parameters, options);
    optimizer.param_groups()[0].options().set_lr(lr);
    set_gradients(parameters, 0);
    CHECK_THROWS_MATCHES(optimizer.step(), std::invalid_argument, MessageMatches(names_rank && says));
    expect_same_bits(parameters, new_parameters());
  }
  CHECK_THROWS_MATCHES(typename TestType::Our(std::vector<at::Tensor>{}, options), std::invalid_argument,
                       MessageMatches(ContainsSubstring("optimizer got an empty parameter list")));
}

// A product of schedules may cross zero, and PyTorch's optimizers check the sign in their constructor only.
TEST_CASE("Optimizers: a learning rate that a schedule made negative climbs, as in Python") {
  at::Tensor parameter = at::full({2}, 1.0, at::kFloat).requires_grad_();
  SGD optimizer({parameter}, SGDOptions(0.5));
  optimizer.param_groups()[0].options().set_lr(-0.5);
  parameter.mutable_grad() = at::full({2}, 2.0, at::kFloat);
  optimizer.step();
  CHECK(parameter.detach().equal(at::full({2}, 2.0, at::kFloat)));
}

TEMPLATE_LIST_TEST_CASE("Optimizers: bad gradients and scales are refused and nothing moves", "", Pairs) {
  const auto options = variants(TestType{}).front();
  auto parameters = new_parameters();
  typename TestType::Our optimizer(parameters, options);
  set_gradients(parameters, 0);
  const auto refused = [&](auto action, const char* text) {
    CHECK_THROWS_MATCHES(action(), std::invalid_argument,
                         MessageMatches(ContainsSubstring("rank 0 of 1") && ContainsSubstring(text)));
    expect_same_bits(parameters, new_parameters());
  };
  refused([&] { optimizer.step_scaled({.grad_scale = flag(1).to(at::kDouble)}); }, "grad_scale must be a float32");
  refused([&] { optimizer.step_scaled({.found_inf = here(at::zeros({2}))}); }, "found_inf must be a float32");
  parameters[4].mutable_grad() = numbers({129}, 3).to_sparse();
  refused([&] { optimizer.step(); }, "does not support sparse gradients");
  const auto complex = here(at::zeros({2}, at::kComplexFloat)).requires_grad_();
  typename TestType::Our other({complex}, options);
  complex.mutable_grad() = here(at::ones({2}, at::kComplexFloat));
  CHECK_THROWS_MATCHES(other.step(), std::invalid_argument,
                       MessageMatches(ContainsSubstring("requires all the params to be floating point")));
}

// Refused because of the last group; the first ones are all right.
TEMPLATE_LIST_TEST_CASE("Optimizers: a refused step leaves parameters gradients and state as they were", "", Pairs) {
  const auto lr_of_last_group = [](auto& optimizer) -> auto& {
    return optimizer.param_groups()[1].options();
  };
  for (const bool larc : {false, true}) {
    for (const char* cause : {"sparse", "dtype", "shape", "lr"}) {
      const auto parameters = new_parameters();
      std::vector<torch::optim::OptimizerParamGroup> groups;
      groups.emplace_back(std::vector(parameters.begin(), parameters.end() - 1));
      groups.emplace_back(std::vector{parameters.back()});
      const auto options = variants(TestType{}).back();
      std::unique_ptr<typename TestType::Our> optimizer;
      if (larc) {
        optimizer = std::make_unique<Larc<typename TestType::Our>>(groups, options);
      } else {
        optimizer = std::make_unique<typename TestType::Our>(groups, options);
      }
      const auto states = [&] {
        std::vector<at::Tensor> tensors;
        for (const auto& parameter : parameters) {
          for (const auto& [name, tensor] : optimizer->parameter_state(parameter)) tensors.push_back(tensor.clone());
        }
        return tensors;
      };
      for (int step = 0; step < 2; ++step) {  // the very first step, and one with state
        set_gradients(parameters, step);
        const auto gradients = copies({parameters[0].grad(), parameters[1].grad()});
        const auto values = copies(parameters);
        const auto before = states();
        const auto entries = optimizer->state().size();
        const std::string text = cause;
        auto& last = parameters.back().mutable_grad();
        if (text == "sparse") last = last.to_sparse();
        if (text == "dtype") last = last.to(at::kDouble);
        if (text == "shape") last = here(at::ones({130}));
        if (text == "lr") lr_of_last_group(*optimizer).set_lr(std::numeric_limits<double>::infinity());
        UNSCOPED_INFO(cause);
        CHECK_THROWS_AS(optimizer->step(), std::invalid_argument);
        expect_same_bits(parameters, values);
        expect_same_bits({parameters[0].grad(), parameters[1].grad()}, gradients);
        expect_same_bits(states(), before);
        INFO(cause << (larc ? ", LARC" : ""));
        CHECK(optimizer->state().size() == entries);
        lr_of_last_group(*optimizer).set_lr(options.lr());
        set_gradients(parameters, step);
        optimizer->step();
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("Optimizers: a model converted after its first step is refused before steps are counted", "",
                        Pairs) {
  const auto parameters = new_parameters();
  typename TestType::Our optimizer(parameters, variants(TestType{}).back());
  train(optimizer, parameters, 0, 2);
  const auto& last = parameters.back();
  last.set_data(last.detach().to(at::kDouble));
  const auto values = copies(parameters);
  set_gradients(parameters, 2);
  last.mutable_grad() = numbers({129}, 3).to(at::kDouble);
  CHECK_THROWS_MATCHES(
      optimizer.step(), std::invalid_argument,
      MessageMatches(ContainsSubstring("rank 0 of 1") && ContainsSubstring("is Float of shape [129]") &&
                     ContainsSubstring("parameter is now Double")));
  expect_same_bits(parameters, values);
  const auto state = optimizer.parameter_state(parameters[0]);
  CHECK((state.contains("step") ? state.at("step").template item<float>() : 2) == 2);
}

TEMPLATE_LIST_TEST_CASE("Optimizers: archives that do not fit are refused and change nothing", "", Pairs) {
  const auto options = variants(TestType{}).back();
  const auto parameters = new_parameters();
  typename TestType::Our optimizer(parameters, options);
  train(optimizer, parameters, 0, 2);
  const auto other =
      std::vector{numbers({7, 4}, 1).requires_grad_(), parameters[1], parameters[2], parameters[3], parameters[4]};
  typename TestType::Our other_shape(other, options);
  typename TestType::Our fewer({parameters[0]}, options);
  train(other_shape, other, 0, 1);
  for (auto* source : {&other_shape, &fewer}) {
    std::stringstream archive;
    torch::save(*source, archive);
    const auto state = optimizer.parameter_state(parameters[1]);
    CHECK_THROWS_AS(torch::load(optimizer, archive), std::invalid_argument);
    CHECK(optimizer.parameter_state(parameters[1]).begin()->second.is_same(state.begin()->second));
  }
}

TEMPLATE_LIST_TEST_CASE("Optimizers: clipping and a scaled step read no device tensor on the host", "", Pairs) {
  const auto parameters = new_parameters();
  Larc<typename TestType::Our> optimizer(parameters, variants(TestType{}).back());
  std::atomic<int> reads = 0;
  static std::atomic<int>* counter;
  counter = &reads;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                                   const std::string_view name = function.name();
                                                   if (name == "aten::item" || name == "aten::_local_scalar_dense")
                                                     ++*counter;
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::FUNCTION}));
  set_gradients(parameters, 0, 16);
  parameters[0].sum().item();
  CHECK(reads.exchange(0) > 0);  // the counter works
  clip_grad_norm_(parameters, 1.0, {.grad_scale = flag(16)});
  optimizer.step_scaled({.grad_scale = flag(16), .found_inf = flag(0)});
  optimizer.zero_grad(false);
  at::removeCallback(handle);
  // LibTorch's kernels for the CPU read the step counters, which are host memory, by aten::item and what that calls.
  const bool counts = !test::is_on_devices() && optimizer.parameter_state(parameters[0]).contains("step");
  CHECK(reads == (counts ? 2 * static_cast<int>(parameters.size()) : 0));
}

TEST_CASE("FusedOptimizer: a parameter that a group has twice is stepped once, one of two groups is refused") {
  const auto parameters = new_parameters(), expected = new_parameters();
  auto repeated = parameters;
  repeated.push_back(parameters[1]);
  repeated.insert(repeated.begin(), parameters[4]);
  SGD once(expected, SGDOptions(0.1).momentum(0.9)), optimizer(repeated, SGDOptions(0.1).momentum(0.9));
  train(once, expected, 0, 3);
  train(optimizer, parameters, 0, 3);
  expect_same_bits(parameters, expected);
  CHECK(optimizer.param_groups()[0].params().size() == parameters.size());

  const auto refusal = MessageMatches(ContainsSubstring("some parameters appear in more than one parameter group"));
  const torch::optim::OptimizerParamGroup first({parameters[0], parameters[1]}), second({parameters[2], parameters[1]});
  CHECK_THROWS_MATCHES(SGD({first, second}), std::invalid_argument, refusal);
  CHECK_THROWS_MATCHES(optimizer.add_param_group(second), std::invalid_argument, refusal);
  CHECK(optimizer.param_groups().size() == 1);
  train(optimizer, parameters, 3, 1);
}

TEMPLATE_LIST_TEST_CASE("Optimizers: a rate that is a tensor gives the number's bits and is kept by archives", "",
                        Pairs) {
  using Ours = typename TestType::Our;
  using Options = typename TestType::OurOptions;
  const auto with_tensor = new_parameters(), with_number = new_parameters();
  const auto rate = flag(0.125);
  Ours one(with_tensor, Options(7).lr_tensor(rate)), other(with_number, Options(0.125));
  train(one, with_tensor, 0, 3);
  train(other, with_number, 0, 3);
  rate.fill_(0.0625);
  other.param_groups()[0].options().set_lr(0.0625);
  train(one, with_tensor, 3, 3);
  train(other, with_number, 3, 3);
  expect_same_bits(with_tensor, with_number);
  one.param_groups()[0].options().set_lr(0.5);
  CHECK(rate.template item<float>() == 0.5F);

  std::stringstream archive;
  torch::save(one, archive);
  const auto loaded = flag(9);
  Ours after(with_tensor, Options(1).lr_tensor(loaded));
  torch::load(after, archive);
  CHECK(loaded.template item<float>() == 0.5F);
  CHECK_THROWS_MATCHES(Options(1).lr_tensor(numbers({2}, 1)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Tensor lr must be 1-element")));
  CHECK_THROWS_MATCHES(Ours(with_tensor, Options(1).lr_tensor(flag(-1))), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid learning rate: -1")));
}

TEST_CASE("Adam: capturable is kept by copies and archives, and allowed on the CPU as in Python with fused=True") {
  const auto parameters = new_parameters();
  Adam optimizer(parameters, AdamOptions(0.1).capturable(true));
  train(optimizer, parameters, 0, 1);
  std::stringstream archive;
  torch::save(optimizer, archive);
  Adam after(parameters, AdamOptions(0.1));
  torch::load(after, archive);
  CHECK(dynamic_cast<AdamOptions&>(after.param_groups()[0].options()).capturable());
}

TEST_CASE("SGD: a skipped first step leaves zero momentum") {
  const auto parameters = new_parameters();
  SGD optimizer(parameters, SGDOptions(0.1).momentum(0.9));
  set_gradients(parameters, 0, std::numeric_limits<double>::quiet_NaN());
  optimizer.step_scaled({.found_inf = flag(1)});
  for (const auto& parameter : parameters) {
    CHECK(optimizer.parameter_state(parameter).at("momentum_buffer").equal(at::zeros_like(parameter)));
  }
  // Then the next step is as a first one.
  const auto expected = new_parameters();
  SGD fresh(expected, SGDOptions(0.1).momentum(0.9));
  train(optimizer, parameters, 1, 5);
  train(fresh, expected, 1, 5);
  expect_same_bits(parameters, expected);
}

// Where LibTorch's kernel, and so Python's fused SGD, is wrong.
TEST_CASE("SGD: half precision is right") {
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const auto plain = here(at::zeros({97}, dtype)).requires_grad_();
    SGD without_momentum({plain}, SGDOptions(0.5));
    plain.mutable_grad() = here(at::ones({97}, dtype));
    without_momentum.step();
    UNSCOPED_INFO(dtype);
    CHECK(plain.equal(here(at::full({97}, -0.5, dtype))));
    const auto parameter = here(at::zeros({97}, dtype)).requires_grad_();
    SGD optimizer({parameter}, SGDOptions(0.5).momentum(0.5).dampening(0.25));
    for (const double expected : {-0.5, -1.125}) {  // momentum 1, then 0.5 + 0.75
      parameter.mutable_grad() = here(at::ones({97}, dtype));
      optimizer.step();
      INFO(dtype << ": " << parameter);
      CHECK(parameter.equal(here(at::full({97}, expected, dtype))));
    }
  }
}

TEST_CASE("SGD: options chain and groups have their own") {
  auto parameters = new_parameters();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{parameters[0]}, std::make_unique<torch::optim::SGDOptions>(1.0));  // LibTorch's class
  groups.emplace_back(std::vector{parameters[1]}, std::make_unique<SGDOptions>(SGDOptions(2.0).maximize(true)));
  groups.emplace_back(std::vector{parameters[4]});
  SGD optimizer(groups, SGDOptions(4.0).momentum(0.5));
  optimizer.add_param_group(
      torch::optim::OptimizerParamGroup({parameters[3]}, std::make_unique<torch::optim::SGDOptions>(8.0)));
  set_gradients(parameters, 0);
  optimizer.step();
  const auto start = new_parameters();
  CHECK(parameters[0].allclose(start[0] - parameters[0].grad()));
  CHECK(parameters[1].allclose(start[1] + 2 * parameters[1].grad()));
  CHECK(parameters[2].equal(start[2]));
  CHECK(parameters[3].allclose(start[3] - 8 * parameters[3].grad()));
  CHECK(parameters[4].allclose(start[4] - 4 * parameters[4].grad()));
  CHECK(optimizer.parameter_state(parameters[0]).empty());
  CHECK(optimizer.parameter_state(parameters[4]).size() == 1);
}

TEST_CASE("SGD: contradicting options are refused") {
  CHECK_THROWS_MATCHES(SGD(new_parameters(), SGDOptions(0.1).nesterov(true)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Nesterov momentum requires a momentum and zero dampening")));
  CHECK_THROWS_MATCHES(SGD(new_parameters(), SGDOptions(0.1).momentum(-0.5)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid momentum value: -0.5")));
  CHECK_THROWS_MATCHES(Adam(new_parameters(), AdamOptions(0.1).betas({0.9, 1.0})), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid beta parameter at index 1: 1.0")));
  CHECK_THROWS_MATCHES(AdamW(new_parameters(), AdamWOptions(0.1).eps(-1e-5)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid epsilon value: -1e-05")));
  CHECK_THROWS_MATCHES(Adagrad(new_parameters(), AdagradOptions(0.1).lr_decay(-1)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid lr_decay value: -1.0")));
}

TEST_CASE("ZeroGrad: both kinds work on gradients that are views of a bucket") {
  const auto parameters = new_parameters();
  SGD optimizer(parameters, SGDOptions(0.1));
  auto bucket = here(at::ones({1000}));
  const auto use_bucket = [&] {
    int64_t offset = 0;
    for (const auto& parameter : parameters) {
      parameter.mutable_grad() = bucket.narrow(0, offset, parameter.numel()).view(parameter.sizes());
      offset += parameter.numel();
    }
  };
  use_bucket();
  CHECK_THROWS_AS(optimizer.torch::optim::Optimizer::zero_grad(false), c10::Error);
  optimizer.zero_grad(false);
  CHECK(bucket.sum().item<float>() == 1000 - 7 * 5 - 3 - 1 - 96 - 129);
  CHECK(parameters[0].grad().is_view());
  optimizer.zero_grad();
  for (const auto& parameter : parameters) CHECK_FALSE(parameter.grad().defined());
}

}  // namespace
}  // namespace ddp::optim
