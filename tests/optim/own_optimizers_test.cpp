// ddprun's own optimizers with scalers, archives, LARC and wrong input, and the kernels below them. Bits are compared
// with Python's in random_steps_test.py.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/full.h>
#include <torch/optim/rmsprop.h>
#include <torch/serialize.h>

#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/optim/larc.h>
#include <ddprun/optim/more_optimizers.h>

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
using test::numbers;
using test::set_gradients;

using AllOptions = std::tuple<RMSpropOptions, AdadeltaOptions, AdamaxOptions, NAdamOptions, RAdamOptions, ASGDOptions,
                              RpropOptions, AdafactorOptions, MuonOptions, LambOptions, LionOptions>;

// With every optional state.
template <typename Options>
Options example() {
  Options options;
  options.lr(0.01);
  if constexpr (std::is_same_v<Options, RMSpropOptions>) options.momentum(0.9).centered(true);
  if constexpr (std::is_same_v<Options, ASGDOptions>) options.t0(2);
  return options;
}

template <typename Options>
std::vector<at::Tensor> parameters_for() {
  if constexpr (std::is_same_v<Options, MuonOptions>) {
    return {numbers({7, 5}, 1).requires_grad_(), numbers({3, 9}, 2).requires_grad_()};
  } else {
    return test::new_parameters();
  }
}

void take_steps(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
}

// Parameters, gradients and states.
std::vector<at::Tensor> everything(const FusedOptimizer& optimizer, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters) {
    tensors.push_back(parameter.detach().clone());
    tensors.push_back(parameter.grad().clone());
    for (const auto& [name, tensor] : optimizer.parameter_state(parameter)) tensors.push_back(tensor.clone());
  }
  return tensors;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: an archive keeps every bit and every option", "", AllOptions) {
  const auto straight = parameters_for<TestType>(), parameters = parameters_for<TestType>();
  OwnOptimizer<TestType> alone(straight, example<TestType>()), before(parameters, example<TestType>());
  take_steps(alone, straight, 0, 10);
  take_steps(before, parameters, 0, 5);
  std::stringstream archive;
  torch::save(before, archive);
  OwnOptimizer<TestType> after(parameters, TestType(9.0));
  torch::load(after, archive);
  take_steps(after, parameters, 5, 5);
  expect_same_bits(everything(after, parameters), everything(alone, straight));
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: a step with found_inf changes nothing and is not counted", "", AllOptions) {
  const auto parameters = parameters_for<TestType>();
  OwnOptimizer<TestType> optimizer(parameters, example<TestType>());
  set_gradients(parameters, 9);
  optimizer.step_scaled({.found_inf = flag(1)});
  if (!test::is_on_devices()) CHECK(optimizer.parameter_state(parameters[0]).empty());  // as in Python
  take_steps(optimizer, parameters, 0, 3);
  set_gradients(parameters, 3, std::numeric_limits<double>::infinity());
  const auto before = everything(optimizer, parameters);
  for (const double found : {1.0, 2.0}) optimizer.step_scaled({.grad_scale = flag(8), .found_inf = flag(found)});
  expect_same_bits(everything(optimizer, parameters), before);
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: scaled gradients are divided and stay divided", "", AllOptions) {
  const auto scaled = parameters_for<TestType>(), plain = parameters_for<TestType>();
  OwnOptimizer<TestType> scaled_optimizer(scaled, example<TestType>()), plain_optimizer(plain, example<TestType>());
  for (int step = 0; step < 5; ++step) {
    set_gradients(scaled, step, 1024);
    scaled_optimizer.step_scaled({.grad_scale = flag(1024).reshape({1}), .found_inf = flag(0)});
    set_gradients(plain, step);
    plain_optimizer.step();
  }
  expect_same_bits(everything(scaled_optimizer, scaled), everything(plain_optimizer, plain));
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: a refused step changes nothing in any group", "", AllOptions) {
  for (const std::string cause : {"sparse", "dtype", "nan"}) {
    const auto parameters = parameters_for<TestType>();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector(parameters.begin(), parameters.end() - 1));
    groups.emplace_back(std::vector{parameters.back()});
    OwnOptimizer<TestType> optimizer(groups, example<TestType>());
    take_steps(optimizer, parameters, 0, 2);
    const auto before = everything(optimizer, parameters);
    at::Tensor& last = parameters.back().mutable_grad();
    const at::Tensor good = last;
    if (cause == "sparse") last = last.to_sparse();
    if (cause == "dtype") last = last.to(at::kDouble);
    if (cause == "nan") optimizer.param_groups()[1].options().set_lr(std::numeric_limits<double>::quiet_NaN());
    INFO(cause);
    CHECK_THROWS_MATCHES(optimizer.step(), std::invalid_argument, MessageMatches(ContainsSubstring("rank 0 of 1")));
    last = good;
    expect_same_bits(everything(optimizer, parameters), before);
  }
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: every option has a range and wrong states are refused", "", AllOptions) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto names = TestType().list();
  for (size_t i = 0; i < names.size(); ++i) {
    TestType options;
    const auto value = options.list()[i].second;
    if (auto* const* number = std::get_if<double*>(&value)) {
      **number = nan;
    } else if (auto* const* pair = std::get_if<std::tuple<double, double>*>(&value)) {
      std::get<1>(**pair) = nan;
    } else {
      continue;
    }
    INFO(names[i].first);
    CHECK_THROWS_MATCHES(OwnOptimizer<TestType>(parameters_for<TestType>(), options), std::invalid_argument,
                         MessageMatches(ContainsSubstring("rank 0 of 1") && ContainsSubstring("nan")));
  }
  const auto parameters = parameters_for<TestType>();
  OwnOptimizer<TestType> optimizer(parameters);
  CHECK_THROWS_MATCHES(optimizer.set_parameter_state(parameters[0], {{"other", numbers({7, 5}, 1)}}),
                       std::invalid_argument, MessageMatches(ContainsSubstring("it has no state named other")));
  take_steps(optimizer, parameters, 0, 1);
  auto state = optimizer.parameter_state(parameters[0]);
  state.rbegin()->second = numbers({2, 2}, 1);
  CHECK_THROWS_AS(optimizer.set_parameter_state(parameters[0], state), std::invalid_argument);
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: gradients lead downhill", "", AllOptions) {
  const auto parameter = numbers({6, 6}, 3).requires_grad_();
  OwnOptimizer<TestType> optimizer({parameter}, example<TestType>());
  const double before = parameter.detach().norm().template item<double>();
  for (int step = 0; step < 100; ++step) {
    parameter.mutable_grad() = parameter.detach() * 2;
    optimizer.step();
  }
  CHECK(parameter.detach().norm().template item<double>() < before);
}

// On the CPU the two are the same; on simulated devices the step is one of operators, whose scalars stay on the device,
// in float32.
TEMPLATE_LIST_TEST_CASE("OwnOptimizers: devices agree with the CPU", "", AllOptions) {
  const auto placed = parameters_for<TestType>();
  std::vector<at::Tensor> on_cpu;
  for (const auto& parameter : placed) on_cpu.push_back(parameter.detach().cpu().clone().requires_grad_());
  OwnOptimizer<TestType> one(placed, example<TestType>()), other(on_cpu, example<TestType>());
  for (int step = 0; step < 12; ++step) {
    set_gradients(placed, step);
    for (size_t i = 0; i < placed.size(); ++i) on_cpu[i].mutable_grad() = placed[i].grad().cpu();
    one.step();
    other.step();
  }
  const auto actual = everything(one, placed), expected = everything(other, on_cpu);
  REQUIRE(actual.size() == expected.size());
  const double tolerance = std::is_same_v<TestType, MuonOptions> ? 0.02 : 1e-4;  // Muon computes in bfloat16
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO("tensor " << i);
    CHECK((actual[i].cpu() - expected[i]).norm().template item<double>() <=
          tolerance * (1e-3 + expected[i].norm().template item<double>()));
  }
}

// RAdam and Adamax have states of Adam's names, and an optimizer that has taken no step has none.
TEST_CASE("OwnOptimizers: archives of other optimizers are refused") {
  const auto parameters = test::new_parameters();
  const auto archive_of = [](auto&& optimizer) {
    std::stringstream archive;
    torch::save(optimizer, archive);
    return archive;
  };
  RAdam radam(parameters, RAdamOptions(0.5));
  const auto refused = [&](std::stringstream archive, const char* text) {
    CHECK_THROWS_MATCHES(torch::load(radam, archive), std::invalid_argument,
                         MessageMatches(ContainsSubstring("rank 0 of 1") && ContainsSubstring(text)));
    CHECK(radam.param_groups()[0].options().get_lr() == 0.5);
  };
  refused(archive_of(NAdam(parameters)), "RAdam: this archive cannot be loaded: it holds the state of NAdam");
  refused(archive_of(torch::optim::RMSprop(parameters)), "it holds no state of RAdam: its options lack betas");
  RMSprop rmsprop(parameters);
  auto archive = archive_of(Lamb(parameters));
  CHECK_THROWS_AS(torch::load(rmsprop, archive), std::invalid_argument);
}

TEST_CASE("RMSprop: exchanges archives with torch::optim's and takes its options") {
  const auto options = torch::optim::RMSpropOptions(0.01).momentum(0.9).centered(true).alpha(0.9);
  const auto straight = test::new_parameters(), parameters = test::new_parameters();
  RMSprop alone(straight, options);
  take_steps(alone, straight, 0, 30);
  std::stringstream first, second;
  RMSprop ours(parameters, options);
  take_steps(ours, parameters, 0, 10);
  torch::save(ours, first);
  torch::optim::RMSprop torchs(parameters, torch::optim::RMSpropOptions(123));
  torch::load(torchs, first);
  take_steps(torchs, parameters, 10, 10);
  torch::save(torchs, second);
  RMSprop again(parameters, RMSpropOptions(321));
  torch::load(again, second);
  take_steps(again, parameters, 20, 10);
  expect_near(parameters, straight);

  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(test::new_parameters(), std::make_unique<torch::optim::RMSpropOptions>(options));
  RMSprop grouped(groups);
  CHECK(dynamic_cast<RMSpropOptions&>(grouped.param_groups()[0].options()).centered());
}

TEST_CASE("OwnOptimizers: a value that the dtype cannot hold is refused before anything changes") {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto parameter = numbers({3}, 1).to(dtype).requires_grad_();
    const auto before = parameter.detach().clone();
    Adamax optimizer({parameter}, AdamaxOptions(1e-3));
    optimizer.param_groups()[0].options().set_lr(1e39);
    parameter.mutable_grad() = before.clone();
    CHECK_THROWS_MATCHES(
        optimizer.step(), std::invalid_argument,
        MessageMatches(ContainsSubstring("rank 0 of 1: Adamax: lr is 1e+39, more than a parameter of")));
    CHECK(parameter.detach().equal(before));
    CHECK(optimizer.parameter_state(parameter).empty());
  }
  const auto narrow = numbers({3}, 1).to(at::kHalf).requires_grad_();
  ASGD optimizer({narrow});  // t0 is 1e6
  narrow.mutable_grad() = narrow.detach().clone();
  optimizer.step();
}

// The average of a tensor above 16 MiB is written past the caches.
TEST_CASE("ASGD: the average of a tensor of 20 MiB that is not aligned is the tensor itself at first") {
  const at::Tensor memory = at::arange(5'000'003, at::kFloat).sin_();
  at::Tensor parameter = memory.slice(0, 1).detach().requires_grad_();
  const float first = parameter[0].item<float>();
  ASGD optimizer({parameter});
  for (int step = 0; step < 2; ++step) {
    parameter.mutable_grad() = at::full_like(parameter, 0.25);
    optimizer.step();
    CHECK(at::equal(optimizer.parameter_state(parameter).at("ax"), parameter));
  }
  CHECK(parameter[0].item<float>() < first);
}

TEST_CASE("Larc: takes the weight decay of ddprun's own optimizers") {
  const auto decayed = test::new_parameters(), plain = test::new_parameters();
  Larc<RMSprop> with_decay(decayed, RMSpropOptions(0.01).weight_decay(0.5));
  Larc<RMSprop> without(plain, RMSpropOptions(0.01));
  take_steps(with_decay, decayed, 0, 1);
  take_steps(without, plain, 0, 1);
  CHECK(!decayed[0].equal(plain[0]));
  CHECK(dynamic_cast<RMSpropOptions&>(with_decay.param_groups()[0].options()).weight_decay() == 0.5);
  CHECK_THROWS_MATCHES(Larc<Rprop>(test::new_parameters(), RpropOptions()).step(), std::invalid_argument,
                       MessageMatches(ContainsSubstring("no weight decay")));
}

TEST_CASE("Adafactor: NaN in a parameter does not spread to its other numbers, as in Python") {
  at::Tensor parameter = here(at::full({4, 3}, 0.5));
  parameter[1][2] = std::numeric_limits<float>::quiet_NaN();
  parameter.requires_grad_();
  parameter.mutable_grad() = here(at::full({4, 3}, 2.0));
  Adafactor optimizer({parameter});
  optimizer.step();
  CHECK(parameter.isnan().sum().item<int64_t>() == 1);
  CHECK(parameter[0][0].item<float>() < 0.5F);
}

TEST_CASE("Muon: matrices of one shape that are updated together have the bits of single ones") {
  const auto [rows, columns] = GENERATE(table<int64_t, int64_t>({{8, 8}, {5, 7}, {7, 5}, {1, 9}, {3, 40}, {64, 64}}));
  const auto matrices = [&] {
    std::vector<at::Tensor> made;
    for (int64_t i = 0; i < 9; ++i) {
      at::Tensor matrix = numbers({rows, columns}, 10 + i).requires_grad_();
      matrix.mutable_grad() = numbers({rows, columns}, 50 + i);
      made.push_back(matrix);
    }
    return made;
  };
  const std::vector<at::Tensor> together = matrices(), alone = matrices();
  Muon stacked(together, MuonOptions(0.1));
  for (int step = 0; step < 3; ++step) stacked.step();
  for (size_t i = 0; i < alone.size(); ++i) {
    Muon single(std::vector{alone[i]}, MuonOptions(0.1));
    for (int step = 0; step < 3; ++step) single.step();
    CHECK(at::equal(together[i], alone[i]));
  }
}

TEST_CASE("Muon: refuses parameters that are not matrices") {
  CHECK_THROWS_MATCHES(Muon(std::vector{numbers({3}, 1).requires_grad_()}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("only supports 2D parameters") && ContainsSubstring("[3]")));
  CHECK_THROWS_MATCHES(Muon(parameters_for<MuonOptions>(), MuonOptions().adjust_lr_fn("none")), std::invalid_argument,
                       MessageMatches(ContainsSubstring("none is not supported")));
  CHECK_THROWS_AS(Muon(parameters_for<MuonOptions>(), MuonOptions().ns_steps(100)), std::invalid_argument);
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: a capturable step on the CPU is refused before anything changes", "",
                        AllOptions) {
  if constexpr (requires(TestType options) { options.capturable(true); }) {
    const auto parameters = parameters_for<TestType>();
    OwnOptimizer<TestType> optimizer(parameters, example<TestType>());
    take_steps(optimizer, parameters, 0, 2);
    dynamic_cast<TestType&>(optimizer.param_groups()[0].options()).capturable(true);
    if (test::is_on_devices()) return take_steps(optimizer, parameters, 2, 1);
    const auto before = everything(optimizer, parameters);
    CHECK_THROWS_MATCHES(
        optimizer.step(), std::invalid_argument,
        MessageMatches(ContainsSubstring(": If capturable=True, params and state_steps must be on "
                                         "supported devices: ['cuda'], but a parameter is on the CPU")));
    expect_same_bits(everything(optimizer, parameters), before);
    for (const auto& parameter : parameters) parameter.mutable_grad().reset();
    optimizer.step();  // as in Python, which looks at parameters with gradients
  }
}

TEMPLATE_LIST_TEST_CASE("OwnOptimizers: a rate that is a tensor is read at each step, and kept by archives", "",
                        AllOptions) {
  const auto with_tensor = parameters_for<TestType>(), with_number = parameters_for<TestType>();
  const auto rate = flag(0.5);
  OwnOptimizer<TestType> one(with_tensor, example<TestType>().lr_tensor(rate));
  OwnOptimizer<TestType> other(with_number, example<TestType>().lr_tensor(flag(0.5)));
  CHECK(one.param_groups()[0].options().get_lr() == 0.5);
  take_steps(one, with_tensor, 0, 2);
  take_steps(other, with_number, 0, 2);
  rate.fill_(0.25);
  other.param_groups()[0].options().set_lr(0.25);
  take_steps(one, with_tensor, 2, 2);
  take_steps(other, with_number, 2, 2);
  expect_same_bits(everything(one, with_tensor), everything(other, with_number));

  std::stringstream archive;
  torch::save(one, archive);
  const auto loaded = flag(9);
  OwnOptimizer<TestType> after(with_tensor, TestType().lr_tensor(loaded));
  torch::load(after, archive);
  CHECK(loaded.template item<float>() == 0.25F);
  CHECK_THROWS_MATCHES(TestType().lr_tensor(numbers({2}, 1)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Tensor lr must be 1-element")));
  CHECK_THROWS_MATCHES(OwnOptimizer<TestType>(with_tensor, TestType().lr_tensor(flag(-1))), std::invalid_argument,
                       MessageMatches(ContainsSubstring("Invalid learning rate: -1")));
}

TEST_CASE("Lamb: each group is clipped to its own limit, by the norm of all gradients") {
  const auto parameters = test::new_parameters(), free = test::new_parameters(), clipped = test::new_parameters();
  const auto make = [](const std::vector<at::Tensor>& all, double first, double second) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector(all.begin(), all.begin() + 2),
                        std::make_unique<LambOptions>(LambOptions(0.1).max_grad_norm(first).eps(1)));
    groups.emplace_back(std::vector(all.begin() + 2, all.end()),
                        std::make_unique<LambOptions>(LambOptions(0.1).max_grad_norm(second).eps(1)));
    Lamb optimizer(groups);
    take_steps(optimizer, all, 0, 3);
  };
  make(parameters, 0, 0.5);
  make(free, 0, 0);
  make(clipped, 0.5, 0.5);
  for (size_t i = 0; i < parameters.size(); ++i) {
    INFO("parameter " << i);
    CHECK(parameters[i].equal((i < 2 ? free : clipped)[i]));
    if (free[i].dim() > 0) CHECK_FALSE(free[i].equal(clipped[i]));  // a number changes by its own size
  }
}

TEST_CASE("Lamb: clips by the norm of the gradients of all groups") {
  const auto make = [](double largest) {
    const auto parameters = test::new_parameters();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector(parameters.begin(), parameters.begin() + 2));
    groups.emplace_back(std::vector(parameters.begin() + 2, parameters.end()));
    Lamb optimizer(groups, LambOptions(0.1).max_grad_norm(largest).eps(1));
    set_gradients(parameters, 0);
    optimizer.step();
    return parameters;
  };
  double squares = 0;
  const auto unclipped = make(0);
  for (const auto& parameter : unclipped) squares += parameter.grad().pow(2).sum().item<double>();
  expect_same_bits(make(2 * std::sqrt(squares)), unclipped);
  CHECK(!make(0.5 * std::sqrt(squares))[0].equal(unclipped[0]));
}

}  // namespace ddp::optim
