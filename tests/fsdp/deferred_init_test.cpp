// deferred_init(): values, memory, and what a program does with such a model.
#include "ddprun/fsdp/deferred_init.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/library.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/fsdp/deferred_nets.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::EveryInit;
using test::expect_equal_models;

constexpr int64_t kSeed = 7;

// Every tensor is deferred, and freed after each operator, or some are.
std::vector<DeferredInitOptions> every_options() {
  return {{.smallest_bytes = 1, .most_resident_bytes = 0},
          {.smallest_bytes = 1, .most_resident_bytes = 1024},
          {.smallest_bytes = 128, .most_resident_bytes = 0},
          {.smallest_bytes = 1, .most_resident_bytes = size_t{1} << 30}};
}

at::Tensor generator_state() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

template <typename Construct>
auto seeded(const Construct& construct) {
  torch::manual_seed(kSeed);
  return construct();
}

TEST_CASE("deferred_init: parameters and buffers have the bits of a construction without it") {
  EveryInit eager = seeded([] { return EveryInit(); });
  const at::Tensor state = generator_state();
  for (const DeferredInitOptions& options : every_options()) {
    EveryInit net = seeded([&] { return deferred_init([] { return EveryInit(); }, options); });
    CHECK(at::equal(generator_state(), state));
    CHECK(is_deferred(*net));
    materialize(*net);
    CHECK(!is_deferred(*net));
    CHECK(at::equal(generator_state(), state));
    expect_equal_models(*net, *eager);
    eager->eval();  // whose running statistics stay
    net->eval();
    const at::Tensor x = at::ones({2, 8});
    CHECK(at::equal(net(x), eager(x)));
    net(x).sum().backward();
  }
}

TEST_CASE("deferred_init: what it freed has no memory, small tensors are ordinary ones") {
  const auto net = deferred_init([] { return torch::nn::Linear(256, 128); }, {.most_resident_bytes = 0});
  CHECK(is_deferred(*net));
  CHECK(!test::has_memory(net->weight));
  CHECK(test::has_memory(net->bias));
  CHECK(!is_deferred(*torch::nn::Linear(3, 3)));
}

TEST_CASE("deferred_init: a use of what has no memory names the parameter") {
  auto net = deferred_init([] { return EveryInit(); }, every_options().front());
  CHECK_THAT(error_of<std::logic_error>([&] {
               net->linear->forward(at::ones({1, 8}));
             }),
             ContainsSubstring("uses the parameter linear.") && ContainsSubstring(", which has no memory yet"));
  CHECK_THAT(error_of<std::logic_error>([&] { net->mask.sum(); }), ContainsSubstring("the buffer mask"));
  CHECK_THAT(error_of<std::logic_error>([&] { at::cat({net->q, net->k}); }), ContainsSubstring("materialize()"));
}

TEST_CASE("deferred_init: init functions, to() and requires_grad may follow it") {
  const auto change = [](torch::nn::Linear net) {
    torch::nn::init::orthogonal_(net->weight);
    {
      const at::NoGradGuard no_grad;
      net->bias.add_(1).mul_(net->bias);
    }
    net->to(at::kDouble);
    net->weight.set_requires_grad(false);
    torch::nn::init::normal_(net->bias, 3, 0.5);
    net->to(at::kBFloat16);
    return net;
  };
  const auto make = [] { return torch::nn::Linear(7, 5); };
  const torch::nn::Linear eager = seeded([&] { return change(make()); });
  for (const DeferredInitOptions& options : every_options()) {
    torch::nn::Linear net = seeded([&] { return change(deferred_init(make, options)); });
    CHECK(net->weight.scalar_type() == at::kBFloat16);
    CHECK(!net->weight.requires_grad());
    if (options.smallest_bytes == 1) {
      CHECK(is_deferred(*net));
      CHECK_THAT(error_of<std::logic_error>([&] {
                   net(at::ones({1, 7}, at::kBFloat16));
                 }),
                 ContainsSubstring("uses the parameter "));
    }
    materialize(*net);
    expect_equal_models(*net, *eager);
  }
}

struct ReadingImpl : torch::nn::Module {
  ReadingImpl() {
    weight = register_parameter("weight", at::randn({16, 16}));
    const at::NoGradGuard no_grad;
    // The spectral norm of what was drawn.
    weight.div_(at::linalg_matrix_norm(weight, 2).item<double>());
    if (weight[0][0].item<double>() > 0) weight.neg_();
    bias = register_parameter("bias", at::randn({16}));
  }
  at::Tensor weight, bias;
};
TORCH_MODULE(Reading);

TEST_CASE("deferred_init: a constructor may read values and branch on them") {
  const Reading eager = seeded([] { return Reading(); });
  for (const DeferredInitOptions& options : every_options()) {
    Reading net = seeded([&] { return deferred_init([] { return Reading(); }, options); });
    materialize(*net);
    expect_equal_models(*net, *eager);
  }
}

struct PastOperatorsImpl : torch::nn::Module {
  PastOperatorsImpl() {
    weight = register_parameter("weight", at::zeros({8, 8}));
    auto* values = weight.data_ptr<float>();
    for (int i = 0; i < 64; ++i) values[i] = static_cast<float>(i);
    const at::NoGradGuard no_grad;
    weight.mul_(2);
    other = register_parameter("other", at::randn({8, 8}));
    list = register_buffer("list", at::tensor(std::vector<double>{1, 2, 3, 4}));
  }
  at::Tensor weight, other, list;
};
TORCH_MODULE(PastOperators);

TEST_CASE("deferred_init: what is written past the operators stays in memory") {
  const PastOperators eager = seeded([] { return PastOperators(); });
  for (const DeferredInitOptions& options : every_options()) {
    PastOperators net = seeded([&] { return deferred_init([] { return PastOperators(); }, options); });
    CHECK(test::has_memory(net->weight));
    CHECK(test::has_memory(net->list));
    materialize(*net);
    expect_equal_models(*net, *eager);
  }
}

// Pointers that are used after other operators: `zeros` by an accessor, `view` by that of a view, `overwritten` before
// an operator that writes all of it, `shared` by a tensor that has its memory.
struct KeptPointersImpl : torch::nn::Module {
  KeptPointersImpl() {
    zeros = register_parameter("zeros", at::zeros({16, 16}));
    auto values = zeros.accessor<float, 2>();
    view = register_parameter("view", at::ones({16, 16}));
    auto* const row = view.detach()[3].data_ptr<float>();
    overwritten = register_parameter("overwritten", at::ones({16, 16}));
    auto* const all = overwritten.data_ptr<float>();
    other = register_buffer("other", at::empty({0}));
    shared = register_parameter("shared", at::ones({16, 16}));
    other.set_(shared.detach().storage(), 0, {16, 16}, {16, 1});
    for (int i = 0; i < 20; ++i) more.push_back(register_parameter("more" + std::to_string(i), at::randn({16, 16})));
    torch::nn::init::constant_(overwritten, 3);
    torch::nn::init::constant_(shared, 4);
    for (int i = 20; i < 40; ++i) more.push_back(register_parameter("more" + std::to_string(i), at::randn({16, 16})));
    for (int i = 0; i < 16; ++i) {
      values[i][i] = static_cast<float>(i);
      row[i] = 2;
      all[i] += 1;
    }
    sum = register_buffer("sum", other.sum());
  }
  at::Tensor zeros, view, overwritten, shared, other, sum;
  std::vector<at::Tensor> more;
};
TORCH_MODULE(KeptPointers);

TEST_CASE("deferred_init: a pointer that is used after other operators keeps its tensor in memory") {
  const KeptPointers eager = seeded([] { return KeptPointers(); });
  for (const DeferredInitOptions& options : every_options()) {
    KeptPointers net = seeded([&] { return deferred_init([] { return KeptPointers(); }, options); });
    for (const at::Tensor& kept : {net->zeros, net->view, net->overwritten, net->shared}) CHECK(test::has_memory(kept));
    if (options.smallest_bytes == 1) CHECK(!test::has_memory(net->more.front()));
    materialize(*net);
    expect_equal_models(*net, *eager);
  }
}

TEST_CASE("deferred_init: a pointer for reading finds the values or ends the process") {
  const float* values = nullptr;
  auto net = seeded([&] {
    return deferred_init(
        [&] {
          torch::nn::Sequential made;
          values = made->register_parameter("weight", at::randn({64, 64})).const_data_ptr<float>();
          return made;
        },
        every_options().front());
  });
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    _exit(values[7] == 0 ? 1 : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  materialize(*net);
  const at::Tensor eager = seeded([] { return at::randn({64, 64}); });
  const at::Tensor weight = net->named_parameters()["weight"];
  CHECK(weight.const_data_ptr<float>() == values);
  CHECK(values[7] == eager.const_data_ptr<float>()[7]);
}

std::atomic<int> clock_reads = 0;

TORCH_LIBRARY(ddprun_deferred_init_test, library) {
  library.def("clock(int size) -> Tensor",
              [](int64_t size) { return at::full({size}, static_cast<double>(++clock_reads)); });
}

struct ClockImpl : torch::nn::Module {
  ClockImpl() {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("ddprun_deferred_init_test::clock", "");
    weight = register_parameter("weight", op.typed<at::Tensor(int64_t)>().call(64));
  }
  at::Tensor weight;
};
TORCH_MODULE(Clock);

TEST_CASE("deferred_init: an operator that does not repeat itself is an error that names the parameter") {
  auto net = deferred_init([] { return Clock(); }, every_options().front());
  CHECK_THAT(error_of<std::runtime_error>([&] { materialize(*net); }),
             ContainsSubstring("the parameter weight again gave different values"));
}

TEST_CASE("deferred_init: two models, one inside another, and one that copies from another") {
  const auto options = every_options().front();
  auto first = seeded([&] { return deferred_init([] { return torch::nn::Linear(4, 4); }, options); });
  auto nested = deferred_init(
      [&] {
        torch::nn::Sequential both(deferred_init([] { return torch::nn::Linear(4, 4); }, options),
                                   torch::nn::Linear(4, 4));
        const at::NoGradGuard no_grad;
        both->at<torch::nn::LinearImpl>(1).weight.copy_(first->weight);
        return both;
      },
      options);
  materialize(*nested);
  materialize(*first);
  const torch::nn::Linear eager = seeded([] { return torch::nn::Linear(4, 4); });
  expect_equal_models(*first, *eager);
  CHECK(at::equal(nested->at<torch::nn::LinearImpl>(1).weight, eager->weight));
  CHECK(at::equal(nested->at<torch::nn::LinearImpl>(0).weight, torch::nn::Linear(4, 4)->weight) == false);
}

TEST_CASE("deferred_init: after a constructor that throws operators are as before") {
  CHECK(error_of<std::runtime_error>([] {
          deferred_init([]() -> torch::nn::Linear {
            const torch::nn::Linear part(64, 64);
            throw std::runtime_error("an error of the constructor");
          });
        }) == "an error of the constructor");
  CHECK(!is_deferred(*torch::nn::Linear(512, 512)));
}

TEST_CASE("deferred_init: other threads construct as always; inference mode is refused") {
  torch::nn::Linear other(nullptr);
  const auto net = deferred_init([&] {
    std::thread([&] { other = torch::nn::Linear(512, 512); }).join();
    return torch::nn::Linear(512, 512);
  });
  CHECK(!is_deferred(*other));
  CHECK(is_deferred(*net));
  const c10::InferenceMode mode;
  CHECK_THAT(error_of<std::logic_error>([] { deferred_init([] { return torch::nn::Linear(2, 2); }); }),
             ContainsSubstring("inference mode"));
}

// A tensor that no module knows, beside a parameter.
struct UnregisteredImpl : torch::nn::Module {
  UnregisteredImpl() : mask(at::ones({32, 32}).tril()), layer(register_module("layer", torch::nn::Linear(32, 32))) {}
  at::Tensor forward(const at::Tensor& x) { return layer(x.matmul(mask)); }
  at::Tensor mask;
  torch::nn::Linear layer;
};
TORCH_MODULE(Unregistered);

TEST_CASE("deferred_init: a tensor that is neither a parameter nor a buffer gets its memory when it is used") {
  Unregistered eager = seeded([] { return Unregistered(); });
  Unregistered net = seeded([] { return deferred_init([] { return Unregistered(); }, every_options().front()); });
  materialize(*net);
  const at::Tensor x = at::ones({2, 32});
  CHECK(at::equal(net(x), eager(x)));
  net(x).sum().backward();
}

}  // namespace
}  // namespace ddp
