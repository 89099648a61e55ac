// SyncBatchNorm together with the rest: DistributedDataParallel, optimizers, checkpoints, a real network.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/syncbn/conversion.h>
#include <ddprun/syncbn/join.h>

#include "examples/models/resnet.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using Catch::Matchers::WithinAbs;

using test::here;
using test::numbers;
using test::run_ranks;
using test::Wire;
using torch::Tensor;

struct NormedNetImpl : torch::nn::Module {
  NormedNetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    uint64_t seed = 1;
    const torch::NoGradGuard no_grad;
    to(torch::kDouble);
    for (Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), seed++));
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(norm(first(x)))); }

  torch::nn::Linear first{6, 8};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Linear second{8, 3};
};
TORCH_MODULE(NormedNet);

// Modules draw their first weights from the generator that all threads share.
template <typename Model, typename... Arguments>
Model make(Arguments&&... arguments) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return test::placed(Model(std::forward<Arguments>(arguments)...));
}

void expect_close(const torch::nn::Module& actual, const torch::nn::Module& expected, double relative) {
  const auto compare = [&](const auto& a, const auto& e) {
    for (const auto& item : e) {
      const Tensor value = a[item.key()].detach().cpu();
      const Tensor exact = item.value().detach().cpu();
      const double scale = std::max(1e-3, exact.abs().max().template item<double>());
      const double difference = (value - exact).abs().max().template item<double>();
      RANK_INFO(item.key());
      RANK_CHECK(difference <= relative * scale);
    }
  };
  compare(actual.named_parameters(), expected.named_parameters());
  compare(actual.named_buffers(), expected.named_buffers());
}

void expect_equal_buffers(const torch::nn::Module& model, const GroupHandle& group) {
  for (const auto& item : model.named_buffers()) {
    const Tensor all = all_gather(item.value().contiguous(), group);
    for (int rank = 1; rank < group.size(); ++rank) {
      RANK_INFO(item.key());
      RANK_CHECK(torch::equal(all[rank], all[0]));
    }
  }
}

torch::optim::SGD optimizer_for(torch::nn::Module& model, double rate) {
  return torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
}

TEST_CASE("Interplay: a wrapped converted model follows one process with the whole batch") {
  constexpr int kInterplaySteps = 10;
  auto whole = make<NormedNet>();
  auto whole_optimizer = optimizer_for(*whole, 0.05);
  for (uint64_t step = 0; step < kInterplaySteps; ++step) {
    whole_optimizer.zero_grad();
    whole(numbers({8, 6}, step)).square().mean().backward();
    whole_optimizer.step();
  }
  whole->to(torch::kCPU);  // the ranks have devices of their own
  for (const Wire wire : test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})) {
    run_ranks(2,
              [&](const GroupHandle& group) {
                auto net = make<NormedNet>();
                convert_sync_batchnorm(net, group);
                DistributedDataParallel<NormedNet> model(net, group);
                auto optimizer = optimizer_for(*net, 0.05);
                for (uint64_t step = 0; step < kInterplaySteps; ++step) {
                  optimizer.zero_grad();
                  model(numbers({8, 6}, step).chunk(2)[static_cast<size_t>(group.rank())]).square().mean().backward();
                  optimizer.step();
                }
                expect_close(*net, *whole, 1e-10);
                expect_equal_buffers(*net, group);
              },
              {.wire = wire});
  }
}

TEST_CASE("Interplay: no_sync accumulates and still shares statistics") {
  run_ranks(2, [](const GroupHandle& group) {
    auto whole = make<NormedNet>();
    auto net = make<NormedNet>();
    convert_sync_batchnorm(net, group);
    DistributedDataParallel<NormedNet> model(net, group);
    const auto share = [&](uint64_t seed) { return numbers({8, 6}, seed).chunk(2)[static_cast<size_t>(group.rank())]; };
    {
      const auto guard = model->no_sync();
      model(share(0)).square().mean().backward();
    }
    model(share(1)).square().mean().backward();
    for (uint64_t seed : {0U, 1U}) whole(numbers({8, 6}, seed)).square().mean().backward();
    for (const auto& item : net->named_parameters()) {
      const Tensor& expected = whole->named_parameters()[item.key()].grad();
      RANK_INFO(item.key());
      RANK_CHECK(torch::allclose(item.value().grad(), expected, 1e-10, 1e-12));
    }
    expect_close(*net->norm, *whole->norm, 1e-12);
    expect_equal_buffers(*net, group);
  });
}

TEST_CASE("Interplay: the wrapper refuses no order but its own") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<NormedNet>();
    {
      const DistributedDataParallel<NormedNet> model(net, group);
      RANK_CHECK_THROWS_AS(convert_sync_batchnorm(net, group), std::logic_error);
      RANK_CHECK_THROWS_AS(convert_sync_batchnorm(*model.ptr(), group), std::logic_error);
    }
    RANK_CHECK(convert_sync_batchnorm(net, group) == 1U);
  });
}

// A second group of the same ranks, for as long as `body` runs.
void with_two_groups(int size, const std::function<void(const GroupHandle& group, const GroupHandle& other)>& body) {
  std::vector<std::promise<GroupHandle>> others(static_cast<size_t>(size));
  std::promise<void> over;
  const std::shared_future<void> end = over.get_future().share();
  std::thread second([&] {
    run_ranks(size, [&](const GroupHandle& group) {
      others[static_cast<size_t>(group.rank())].set_value(group);
      end.wait();
    });
  });
  try {
    run_ranks(size, [&](const GroupHandle& group) {
      body(group, others[static_cast<size_t>(group.rank())].get_future().get());
    });
  } catch (const std::exception& error) {
    RANK_FAIL_CHECK(error.what());
  }
  over.set_value();
  second.join();
}

TEST_CASE("Interplay: join with uneven data equals one process with what data there is") {
  constexpr uint64_t kLong = 6;
  constexpr uint64_t kShort = 2;
  auto whole = make<NormedNet>();
  auto whole_optimizer = optimizer_for(*whole, 0.05);
  for (uint64_t step = 0; step < kLong; ++step) {
    whole_optimizer.zero_grad();
    const Tensor batch = numbers({8, 6}, step);
    // Gradients are divided by the number of ranks, whether they have joined or not.
    (whole(step < kShort ? batch : batch.narrow(0, 4, 4)).square().sum() / 2).backward();
    whole_optimizer.step();
  }
  whole->to(torch::kCPU);
  with_two_groups(2, [&](const GroupHandle& group, const GroupHandle& norms_group) {
    auto net = make<NormedNet>();
    convert_sync_batchnorm(net, norms_group);
    DistributedDataParallel<NormedNet> model(net, group);
    SyncBatchNormJoinable norms(*net, group);
    auto optimizer = optimizer_for(*net, 0.05);
    join({&model->joinable(), &norms}, [&] {
      for (uint64_t step = 0; step < (group.rank() == 0 ? kShort : kLong); ++step) {
        optimizer.zero_grad();
        model(numbers({8, 6}, step).chunk(2)[static_cast<size_t>(group.rank())]).square().sum().backward();
        optimizer.step();
      }
    });
    expect_close(*net, *whole, 1e-9);
    expect_equal_buffers(*net, group);
  });
}

TEST_CASE("Interplay: join stops all ranks when asked to") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<NormedNet>();
    convert_sync_batchnorm(net, group);
    DistributedDataParallel<NormedNet> model(net, group);
    const auto train = [&] {
      for (int step = 0; step < (group.rank() == 0 ? 2 : 5); ++step) model(numbers({4, 6}, 1)).sum().backward();
    };
    RANK_CHECK_THROWS_AS(model->join(train, {.throw_on_early_termination = true}), std::runtime_error);
  });
}

TEST_CASE("Interplay: joinable layers need a group of their own") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<NormedNet>();
    {
      RANK_INFO("nothing is converted");
      RANK_CHECK_THROWS_AS(SyncBatchNormJoinable(*net, group), std::invalid_argument);
    }
    convert_sync_batchnorm(net, group);
    RANK_CHECK_THROWS_AS(SyncBatchNormJoinable(*net, group), std::invalid_argument);
  });
}

TEST_CASE("Interplay: ranks without data may pass empty batches") {
  auto whole = make<NormedNet>();
  whole(numbers({4, 6}, 1)).square().sum().backward();
  const Tensor expected = whole->first->weight.grad().cpu();
  run_ranks(2, [&](const GroupHandle& group) {
    auto net = make<NormedNet>();
    convert_sync_batchnorm(net, group);
    DistributedDataParallel<NormedNet> model(net, group);
    model(group.rank() == 0 ? here(torch::empty({0, 6}, torch::kDouble)) : numbers({4, 6}, 1))
        .square()
        .sum()
        .backward();
    RANK_CHECK(torch::allclose(net->first->weight.grad() * 2, here(expected), 1e-10, 1e-12));
  });
}

// A layer that some iterations leave out, on all ranks alike.
struct BranchesImpl : NormedNetImpl {
  BranchesImpl() {
    register_module("other", other);
    other->to(torch::kDouble);
  }
  Tensor forward(const Tensor& x, bool branch) {
    return second(torch::tanh(branch ? other(first(x)) : norm(first(x))));
  }
  torch::nn::BatchNorm1d other{8};
};
TORCH_MODULE(Branches);

TEST_CASE("Interplay: unused layers are found by the wrapper") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<Branches>();
    convert_sync_batchnorm(net, group);
    DistributedDataParallel<Branches> model(net, group, {.find_unused_parameters = true});
    for (const bool branch : {false, true, true, false}) {
      model->zero_grad();
      model(numbers({4, 6}, static_cast<uint64_t>(group.rank())), branch).square().mean().backward();
    }
    RANK_CHECK(net->other->num_batches_tracked.item<int64_t>() == 2);
    expect_equal_buffers(*net, group);
    const Tensor all = all_gather(net->norm->weight.grad().contiguous(), group);
    RANK_CHECK(torch::equal(all[0], all[1]));
  });
}

// What torch.utils.checkpoint does: forward without a graph, and again in backward.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, NormedNetImpl* net) {
    context->save_for_backward({x});
    context->saved_data["net"] = reinterpret_cast<int64_t>(net);
    return net->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto* net = reinterpret_cast<NormedNetImpl*>(context->saved_data["net"].toInt());
    const at::AutoGradMode with_graph(true);
    Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    net->forward(x).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
};

TEST_CASE("Interplay: activation checkpointing runs forward twice on all ranks") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<NormedNet>();
    auto plain = make<NormedNet>();
    convert_sync_batchnorm(net, group);
    convert_sync_batchnorm(plain, group);
    const Tensor input = numbers({4, 6}, static_cast<uint64_t>(group.rank()));
    Tensor x = input.clone().requires_grad_();
    Checkpointed::apply(x, net.get()).square().sum().backward();
    Tensor y = input.clone().requires_grad_();
    plain(y).square().sum().backward();
    RANK_CHECK(torch::allclose(x.grad(), y.grad(), 1e-12, 1e-13));
    RANK_CHECK(torch::allclose(net->first->weight.grad(), plain->first->weight.grad(), 1e-12, 1e-13));
    RANK_INFO("as with torch::nn::BatchNorm");
    RANK_CHECK(net->norm->num_batches_tracked.item<int64_t>() == 2);
    expect_equal_buffers(*net, group);
  });
}

TEST_CASE("Interplay: resnet18 with 2 ranks of 8 follows 1 process of 16 over 20 steps") {
  constexpr int kInterplaySteps = 20;
  const auto images = [](uint64_t step) { return numbers({16, 3, 16, 16}, step); };
  const auto labels = [](uint64_t step) {
    return here(torch::randint(10, {16}, at::detail::createCPUGenerator(1000 + step), torch::kLong));
  };
  const auto make_resnet = [] {
    auto net = make<models::ResNet18>(models::ResNetOptions{.num_classes = 10});
    net->to(torch::kDouble);  // in single precision rounding alone would drive two equal trainings apart
    uint64_t seed = 1;
    const torch::NoGradGuard no_grad;
    net->fc->bias.zero_();
    for (Tensor& parameter : net->parameters()) {
      if (parameter.dim() > 1) {
        const auto fan = static_cast<double>(parameter.numel() / parameter.size(0));
        parameter.copy_(numbers(parameter.sizes(), seed++) * std::sqrt(2 / fan));
      }
    }
    return net;
  };
  const auto train = [&](auto& model, torch::nn::Module& net, int rank, int size) {
    auto optimizer = optimizer_for(net, 0.01);
    std::vector<double> losses;
    for (uint64_t step = 0; step < kInterplaySteps; ++step) {
      optimizer.zero_grad();
      const auto part = [&](const Tensor& all) { return all.chunk(size)[static_cast<size_t>(rank)]; };
      const Tensor loss = torch::nn::functional::cross_entropy(model(part(images(step))), part(labels(step)));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  };
  auto whole = make_resnet();
  const auto expected = train(whole, *whole, 0, 1);
  whole->to(torch::kCPU);
  run_ranks(2, [&](const GroupHandle& group) {
    auto net = make_resnet();
    RANK_CHECK(convert_sync_batchnorm(net, group) == 20U);
    DistributedDataParallel<models::ResNet18> model(net, group);
    const auto own = train(model, *net, group.rank(), group.size());
    Tensor losses = here(torch::tensor(own, torch::kDouble));
    all_reduce(losses, group, ReduceOp::kAvg);
    for (int64_t step = 0; step < kInterplaySteps; ++step) {
      const double whole_loss = expected[static_cast<size_t>(step)];
      RANK_INFO("step " << step);
      RANK_CHECK_THAT(losses[step].item<double>(), WithinAbs(whole_loss, 1e-7 * whole_loss));
    }
    expect_close(*net, *whole, 1e-6);
    expect_equal_buffers(*net, group);
  });
}

}  // namespace
}  // namespace ddp
