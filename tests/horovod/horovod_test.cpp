// Horovod's names and ways against closed forms and a single process that sees all batches.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/horovod/horovod.h>

#include "horovod/gradient_buckets.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp::horovod {
namespace {

using Catch::Matchers::ContainsSubstring;

using test::ElementsAre;
using test::error_of;
using test::here;
using test::run_ranks;
using torch::nn::Linear;
using torch::optim::SGD;

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance = 1e-6,
                  const std::string& what = "") {
  RANK_INFO(what);
  RANK_REQUIRE(actual.sizes() == expected.sizes());
  RANK_CHECK_THAT(actual, test::IsCloseTo(expected, tolerance, tolerance));
}

// A small network with fixed values, the same on all ranks.
torch::nn::Sequential make_net() {
  auto net = test::placed(torch::nn::Sequential(Linear(3, 4), Linear(4, 2)));
  const at::NoGradGuard no_grad;
  int64_t number = 0;
  for (at::Tensor& parameter : net->parameters()) {
    ++number;
    parameter.copy_(at::linspace(-0.5, 0.5, parameter.numel()).view(parameter.sizes()) / number);
  }
  return net;
}

at::Tensor batch(int rank, int step) {
  return (here(at::arange(6, at::kFloat)).view({2, 3}) + static_cast<float>(rank) - 0.5F * static_cast<float>(step)) /
         5;
}

at::Tensor loss_of(torch::nn::Sequential& net, int rank, int step) {
  return net->forward(batch(rank, step)).square().sum();
}

// What one process gets: per step the gradients of all ranks and passes, divided by `divisor`.
std::vector<at::Tensor> reference(int size, int steps, int passes, double divisor, double momentum) {
  auto net = make_net();
  SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(momentum));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < passes; ++pass) {
      for (int rank = 0; rank < size; ++rank) (loss_of(net, rank, step * passes + pass) / divisor).backward();
    }
    optimizer.step();
  }
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : net->parameters()) values.push_back(parameter.detach().cpu().clone());
  return values;
}

void expect_parameters(const torch::nn::Sequential& net, const std::vector<at::Tensor>& expected, double tolerance,
                       const std::string& what) {
  const auto parameters = net->parameters();
  for (size_t i = 0; i < expected.size(); ++i) expect_close(parameters[i].detach(), expected[i], tolerance, what);
}

class Horovod : public test::EveryWireAndSize {};

TEST_CASE_METHOD(Horovod, "Horovod: optimizer equals one process that sees all batches") {
  struct Case {
    std::string name;
    DistributedOptimizerOptions options;
    double divisor;  // of the summed gradients; 0: the number of ranks
    double tolerance;
  };
  const int n = size();
  std::vector<Case> cases(7);
  cases[0] = {.name = "average", .options = {}, .divisor = 0, .tolerance = 1e-6};
  cases[1] = {.name = "sum", .options = {.op = Op::kSum}, .divisor = 1, .tolerance = 1e-5};
  cases[2] = {.name = "fp16", .options = {.compression = Compression::kFp16}, .divisor = 0, .tolerance = 3e-3};
  cases[3] = {.name = "bf16", .options = {.compression = Compression::kBf16}, .divisor = 0, .tolerance = 2e-2};
  cases[4] = {.name = "predivide", .options = {.gradient_predivide_factor = 4.0}, .divisor = 0, .tolerance = 1e-6};
  cases[5] = {
      .name = "one parameter a message", .options = {.fusion_threshold_bytes = 1}, .divisor = 0, .tolerance = 1e-6};
  cases[6] = {.name = "two groups", .options = {.num_groups = 2}, .divisor = 0, .tolerance = 1e-6};
  for (const Case& c : cases) {
    const auto expected = reference(n, 4, 1, c.divisor == 0 ? n : c.divisor, 0.9);
    run([&](const GroupHandle& group) {
      auto net = make_net();
      SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
      DistributedOptimizerOptions options = c.options;
      options.named_parameters = net->named_parameters().pairs();
      DistributedOptimizer optimizer(sgd, group, options);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        loss_of(net, group.rank(), step).backward();
        optimizer.step();
      }
      expect_parameters(net, expected, c.tolerance, c.name);
    });
  }
}

TEST_CASE_METHOD(Horovod, "Horovod: several backwards accumulate before they travel") {
  const auto expected = reference(size(), 3, 2, size(), 0.0);
  run([&](const GroupHandle& group) {
    auto net = make_net();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
    DistributedOptimizer optimizer(sgd, group, {.backward_passes_per_step = 2});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      for (int pass = 0; pass < 2; ++pass) loss_of(net, group.rank(), 2 * step + pass).backward();
      optimizer.step();
    }
    expect_parameters(net, expected, 1e-6, "two passes");
  });
}

TEST_CASE_METHOD(Horovod, "Horovod: synchronize gives reduced gradients to clip and skip_synchronize steps on them") {
  const auto expected = reference(size(), 1, 1, 2.0 * size(), 0.0);
  run([&](const GroupHandle& group) {
    auto net = make_net();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
    DistributedOptimizer optimizer(sgd, group, {.named_parameters = net->named_parameters().pairs()});
    loss_of(net, group.rank(), 0).backward();
    optimizer.synchronize();
    for (at::Tensor& parameter : net->parameters()) parameter.mutable_grad().div_(2);
    {
      const auto guard = optimizer.skip_synchronize();
      optimizer.step();
    }
    expect_parameters(net, expected, 1e-6, "halved gradients");
    optimizer.zero_grad();  // allowed again
  });
}

TEST_CASE_METHOD(Horovod, "Horovod: ranks may skip parts of the model") {
  run([&](const GroupHandle& group) {
    auto net = make_net();
    const auto before = net->parameters()[2].detach().clone();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(1.0));
    DistributedOptimizer optimizer(sgd, group, {.fusion_threshold_bytes = 1});
    optimizer.zero_grad();
    // Rank 0 alone uses the last layer's weight, which becomes ready first.
    if (group.rank() == 0) {
      net->parameters()[2].sum().backward();
    } else {
      net->parameters()[0].sum().backward();
    }
    optimizer.step();
    if (group.size() == 1) return;
    expect_close(net->parameters()[2].detach(), before - 1.0 / group.size());
  });
}

TEST_CASE_METHOD(Horovod, "Horovod: collectives have Horovod's meanings") {
  run([&](const GroupHandle& group) {
    // The context owns a group; here it borrows the test's.
    Context hvd(ProcessGroup(std::shared_ptr<detail::GroupState>(&group.state(), [](detail::GroupState*) {})));
    const int n = hvd.size();
    const float rank = static_cast<float>(hvd.rank());
    const at::Tensor mine = here(at::full({2}, rank + 1));
    const float sum = static_cast<float>(n * (n + 1)) / 2;
    expect_close(hvd.allreduce(mine), here(at::full({2}, sum / n)), 1e-6, "the default is the average");
    expect_close(hvd.allreduce(mine, {.op = Op::kSum}), here(at::full({2}, sum)));
    expect_close(hvd.allreduce(mine, {.op = Op::kMax, .prescale_factor = 2, .postscale_factor = 3}),
                 here(at::full({2}, 6.0F * n)));
    expect_close(mine, here(at::full({2}, rank + 1)), 1e-6, "left alone");
    at::Tensor in_place = mine.clone();
    hvd.allreduce_(in_place, {.op = Op::kSum});
    expect_close(in_place, here(at::full({2}, sum)));
    auto handle = hvd.allreduce_async(mine, {.op = Op::kSum, .postscale_factor = 0.5});
    expect_close(Context::synchronize(handle), here(at::full({2}, sum / 2)));
    RANK_CHECK(Context::poll(handle));
    const auto grouped = hvd.grouped_allreduce({mine, here(at::full({}, 2.0))}, {.op = Op::kSum});
    expect_close(grouped[0], here(at::full({2}, sum)));
    expect_close(grouped[1], here(at::full({}, 2.0 * n)));

    std::vector<at::Tensor> rows;
    for (int i = 0; i < n; ++i) rows.push_back(here(at::full({i, 2}, static_cast<float>(i))));
    const at::Tensor own_rows = rows[static_cast<size_t>(hvd.rank())];
    expect_close(hvd.allgather(own_rows), at::cat(rows));
    auto gathering = hvd.allgather_async(own_rows);
    expect_close(Context::synchronize(gathering), at::cat(rows));

    expect_close(hvd.broadcast(mine, n - 1), here(at::full({2}, static_cast<float>(n))));
    auto sending = hvd.broadcast_async(mine, 0);
    expect_close(Context::synchronize(sending), here(at::ones({2})));
    expect_close(hvd.alltoall(here(at::full({n, 2}, rank))),
                 here(at::arange(n, at::kFloat)).unsqueeze(1).expand({n, 2}));
    const std::vector<int64_t> splits(static_cast<size_t>(n), 2);
    RANK_CHECK(hvd.alltoall(here(at::full({2L * n, 2}, rank)), splits).sizes() == std::vector<int64_t>{2L * n, 2});
    expect_close(hvd.reducescatter(here(at::full({n, 2}, rank)), Op::kSum),
                 here(at::full({1, 2}, static_cast<float>(n * (n - 1)) / 2)));
    RANK_CHECK(hvd.broadcast_object(hvd.rank() == 0 ? "{\"epoch\": 3}" : "") == "{\"epoch\": 3}");
    RANK_CHECK(hvd.allgather_object(std::to_string(hvd.rank())).back() == std::to_string(n - 1));
    hvd.barrier();
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { hvd.reducescatter(mine, Op::kAdasum); }),
                    ContainsSubstring("allreduce"));
  });
}

// The recursion written down for one process.
at::Tensor adasum_of(const std::vector<at::Tensor>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  const size_t middle = (begin + end) / 2;
  const at::Tensor a = adasum_of(values, begin, middle).to(at::kDouble);
  const at::Tensor b = adasum_of(values, middle, end).to(at::kDouble);
  const double dot = (a * b).sum().item<double>();
  const double aa = a.square().sum().item<double>();
  const double bb = b.square().sum().item<double>();
  return (a * (aa > 0 ? 1 - dot / (2 * aa) : 1) + b * (bb > 0 ? 1 - dot / (2 * bb) : 1)).to(values[0].scalar_type());
}

TEST_CASE_METHOD(Horovod, "Horovod: Adasum is the recursion of the paper layer by layer") {
  run([&](const GroupHandle& group) {
    const auto layer = [](int which, int rank) {
      return at::sin(here(at::arange(5 + which, at::kFloat)) * (rank + 1.3F) + static_cast<float>(which));
    };
    std::vector<at::Tensor> mine{layer(0, group.rank()), layer(1, group.rank()),
                                 layer(2, group.rank()).to(at::kDouble)};
    if (group.size() == 3) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { adasum_allreduce(mine, group); }),
                      ContainsSubstring("power of two"));
      return;
    }
    adasum_allreduce(mine, group);
    for (int which = 0; which < 3; ++which) {
      std::vector<at::Tensor> all;
      for (int rank = 0; rank < group.size(); ++rank)
        all.push_back(layer(which, rank).to(mine[static_cast<size_t>(which)].scalar_type()));
      expect_close(mine[static_cast<size_t>(which)], adasum_of(all, 0, all.size()), 1e-6,
                   "layer " + std::to_string(which));
    }
    const at::Tensor everywhere = all_gather(mine[0], group);
    for (int rank = 0; rank < group.size(); ++rank) {
      RANK_INFO("same bits");
      RANK_CHECK(at::equal(everywhere[rank], mine[0]));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { adasum_allreduce({here(at::ones({2}, at::kLong))}, group); }),
                    ContainsSubstring("floating-point"));
  });
}

TEST_CASE("Adasum: adds orthogonal vectors and averages equal ones") {
  const at::Tensor a = here(at::tensor({3.0F, 0.0F}));
  const at::Tensor b = here(at::tensor({0.0F, 4.0F}));
  expect_close(adasum(a, b), here(at::tensor({3.0F, 4.0F})));
  expect_close(adasum(a, a), a);
  expect_close(adasum(a, -a), here(at::zeros({2})), 1e-6, "opposite ones: 1.5 a - 1.5 a");
  expect_close(adasum(a, here(at::zeros({2}))), a);
  expect_close(adasum(here(at::zeros({2})), b), b);
  // (1 - 3/18) (3, 0) + (1 - 3/4) (1, 1)
  expect_close(adasum(a, here(at::ones({2}))), here(at::tensor({2.75F, 0.25F})));
}

TEST_CASE_METHOD(Horovod, "Horovod: Adasum optimizer combines how far the parameters moved") {
  if (size() == 3) return;
  run([&](const GroupHandle& group) {
    const auto moved = [](int rank) {
      auto net = make_net();
      SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
      loss_of(net, rank, 0).backward();
      const auto start = make_net()->parameters();
      sgd.step();
      std::vector<at::Tensor> deltas;
      for (size_t i = 0; i < start.size(); ++i) deltas.push_back(net->parameters()[i].detach() - start[i].detach());
      return deltas;
    };
    auto net = make_net();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(sgd, group, {.op = Op::kAdasum});
    loss_of(net, group.rank(), 0).backward();
    optimizer.step();
    const auto start = make_net()->parameters();
    for (size_t i = 0; i < start.size(); ++i) {
      std::vector<at::Tensor> all;
      for (int rank = 0; rank < group.size(); ++rank) all.push_back(moved(rank)[i]);
      expect_close(net->parameters()[i].detach(), start[i].detach() + adasum_of(all, 0, all.size()), 1e-6);
    }
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { const auto guard = optimizer.skip_synchronize(); }),
                    ContainsSubstring("Adasum"));
    optimizer.zero_grad();
  });
}

TEST_CASE_METHOD(Horovod, "Horovod: broadcasts parameters and optimizer state") {
  run([&](const GroupHandle& group) {
    const int root = group.size() - 1;
    auto net = make_net();
    const bool is_root = group.rank() == root;
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(is_root ? 0.5 : 0.01));
    if (is_root) {
      loss_of(net, 0, 0).backward();
      adam.step();
    }
    broadcast_parameters(*net, root, group);
    broadcast_optimizer_state(adam, root, group);
    RANK_CHECK(static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options()).lr() == 0.5);
    // The same gradient then gives the same second step everywhere, which needs equal moments and step counts.
    adam.zero_grad();
    loss_of(net, 1, 1).backward();
    adam.step();
    for (const at::Tensor& parameter : net->parameters()) {
      const at::Tensor all = all_gather(parameter, group);
      for (int rank = 0; rank < group.size(); ++rank) RANK_CHECK(at::equal(all[rank], all[0]));
    }
    RANK_CHECK(adam.state().size() == 4U);
  });
}

TEST_CASE("HorovodErrors: optimizer options that contradict each other are refused") {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = make_net();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    const auto refusal = [&](const DistributedOptimizerOptions& options) {
      return error_of<std::invalid_argument>([&] { DistributedOptimizer optimizer(sgd, group, options); });
    };
    auto named = net->named_parameters().pairs();
    RANK_CHECK(refusal({.named_parameters = named}) == "no error");
    auto twice = named;
    twice[1].first = twice[0].first;
    RANK_CHECK_THAT(refusal({.named_parameters = twice}),
                    ContainsSubstring("must be unique, but '0.weight' is given twice"));
    auto incomplete = named;
    incomplete.pop_back();
    RANK_CHECK_THAT(refusal({.named_parameters = incomplete}),
                    ContainsSubstring("lacks 1 of the optimizer's 4 parameters"));
    RANK_CHECK_THAT(refusal({.backward_passes_per_step = 0}), ContainsSubstring("backward_passes_per_step=0"));
    RANK_CHECK_THAT(refusal({.op = Op::kMax}), ContainsSubstring("op must be kAverage, kSum or kAdasum"));
    RANK_CHECK_THAT(refusal({.op = Op::kSum, .gradient_predivide_factor = 2}), ContainsSubstring("needs op kAverage"));
    RANK_CHECK_THAT(refusal({.gradient_predivide_factor = 0}), ContainsSubstring("must be positive"));
    RANK_CHECK_THAT(refusal({.num_groups = -1}), ContainsSubstring("num_groups=-1"));
    RANK_CHECK_THAT(refusal({.num_groups = 1, .groups = {{named[0].second}}}), ContainsSubstring("cannot be combined"));
    RANK_CHECK_THAT(refusal({.groups = {{named[0].second}, {named[0].second}}}),
                    ContainsSubstring("a parameter is given twice"));
    RANK_CHECK_THAT(refusal({.groups = {{here(at::ones({1}))}}}),
                    ContainsSubstring("is not a parameter of the optimizer"));
    RANK_CHECK_THAT(refusal({.fusion_threshold_bytes = 0}), ContainsSubstring("fusion_threshold_bytes"));
    torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions());
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { DistributedOptimizer optimizer(lbfgs, group); }),
                    ContainsSubstring("LBFGS"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_optimizer_state(lbfgs, 0, group); }),
                    ContainsSubstring("LBFGS"));
  });
}

TEST_CASE("HorovodErrors: calls in the wrong order are errors that say so") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make_net();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(sgd, group, {.named_parameters = net->named_parameters().pairs()});
    loss_of(net, group.rank(), 0).backward();
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { optimizer.zero_grad(); }),
                    ContainsSubstring("zero_grad() was called after backward() but before step() or synchronize()"));
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { optimizer.set_backward_passes_per_step(2); }),
                    ContainsSubstring("before step()"));
    RANK_CHECK_THAT(error_of<std::exception>([&] { loss_of(net, group.rank(), 0).backward(); }),
                    ContainsSubstring("was computed more than backward_passes_per_step=1 times before step()") &&
                        ContainsSubstring("'1."));
    optimizer.step();
    optimizer.zero_grad();
    optimizer.set_backward_passes_per_step(2);
    for (int pass = 0; pass < 2; ++pass) loss_of(net, group.rank(), 0).backward();
    optimizer.step();
  });
}

TEST_CASE("HorovodErrors: loading into the model leaves its hooks in place") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make_net();
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(sgd, group, {.named_parameters = net->named_parameters().pairs()});
    std::stringstream file;
    torch::save(net, file);
    torch::load(net, file);
    optimizer.zero_grad();
    loss_of(net, group.rank(), 0).backward();
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { optimizer.zero_grad(); }),
                    ContainsSubstring("was called after backward()"));
    optimizer.step();
  });
}

// Rank 0 as well: it would go on, and then be accused by the others of having left them.
TEST_CASE("HorovodErrors: models that differ are named on every rank") {
  run_ranks(3, [](const GroupHandle& group) {
    auto net = test::placed(Linear(3, group.rank() == 0 ? 2 : 5));
    SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    const std::string message = error_of<std::runtime_error>(
        [&] { DistributedOptimizer optimizer(sgd, group, {.named_parameters = net->named_parameters().pairs()}); });
    RANK_CHECK_THAT(message,
                    ContainsSubstring(": DistributedOptimizer: the ranks' parameters differ; the first difference: ") &&
                        ContainsSubstring("rank 0 has 'weight' (Float [2, 3]), the others 'weight' (Float [5, 3])"));
  });
}

TEST_CASE("HorovodErrors: sparse gradients are refused unless they may become dense") {
  for (const bool dense : {false, true}) {
    run_ranks(2, [&](const GroupHandle& group) {
      torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true)._weight(here(at::zeros({4, 2}))));
      SGD sgd(table->parameters(), torch::optim::SGDOptions(1.0));
      DistributedOptimizer optimizer(sgd, group, {.sparse_as_dense = dense});
      const auto train = [&] {
        table->forward(here(at::full({1}, group.rank(), at::kLong))).sum().backward();
        optimizer.step();
      };
      if (!dense) {
        RANK_CHECK_THAT(error_of<std::exception>(train), ContainsSubstring("set sparse_as_dense"));
        return;
      }
      train();
      expect_close(table->weight.detach(),
                   here(at::tensor({-0.5F, -0.5F, -0.5F, -0.5F, 0.0F, 0.0F, 0.0F, 0.0F})).view({4, 2}));
    });
  }
}

TEST_CASE("BucketPlan: follows the order in which gradients become ready") {
  const std::vector<at::Tensor> parameters{here(at::zeros({4})), here(at::zeros({4})),
                                           here(at::zeros({2}, at::kDouble)), here(at::zeros({4})),
                                           here(at::zeros({1}))};
  CHECK_THAT(plan_buckets(parameters, {}, 1),
             ElementsAre(ElementsAre(4), ElementsAre(3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  CHECK_THAT(plan_buckets(parameters, {}, 20),
             ElementsAre(ElementsAre(4, 3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  CHECK_THAT(plan_buckets(parameters, {}, 1000), ElementsAre(ElementsAre(2), ElementsAre(4, 3, 1, 0)));
  CHECK_THAT(plan_buckets(parameters, {{0, 2, 3}}, 1000),
             ElementsAre(ElementsAre(2), ElementsAre(4, 1), ElementsAre(0, 3)));
}

}  // namespace
}  // namespace ddp::horovod
