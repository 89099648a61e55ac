// A run that is resumed has the buckets, hence the bits, of the run that was interrupted, on more than two ranks too.
#include <ATen/ops/equal.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_close;
using test::here;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;

constexpr int kSteps = 6;

struct DeepImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i < layers->size(); ++i) x = layers[i]->as<torch::nn::Linear>()->forward(x).tanh();
    return x;
  }
  torch::nn::Sequential layers = register_module("layers", make_layers());

 private:
  static torch::nn::Sequential make_layers() {
    torch::nn::Sequential made;
    for (int i = 0; i < 6; ++i) made->push_back(torch::nn::Linear(20, 20));
    return made;
  }
};
TORCH_MODULE(Deep);

// One of several dtypes, which cannot share a bucket.
struct TwoTypesImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return (x * single).to(torch::kDouble) * precise; }
  torch::Tensor single = register_parameter("single", torch::ones({4}));
  torch::Tensor precise = register_parameter("precise", torch::ones({4}, torch::kDouble));
};
TORCH_MODULE(TwoTypes);

DdpOptions small_buckets(bool own, bool list = false) {
  if (list) return {.bucket_cap_bytes_list = {1024, 4096, 2048}, .own_engine = own};
  return {.bucket_cap_bytes = 4096, .first_bucket_bytes = 1024, .own_engine = own};
}

struct Saved {
  std::string buckets;
  std::vector<torch::Tensor> weights;
};

std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> copies;
  for (const torch::Tensor& parameter : parameters) copies.push_back(parameter.detach().clone());
  return copies;
}

// Steps `begin` to kSteps; what there was before each of them.
std::vector<Saved> train_deep(Deep& net, DistributedDataParallel<Deep>& model, const GroupHandle& group, int begin) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  std::vector<Saved> states;
  for (int step = begin; step < kSteps; ++step) {
    states.push_back({model->bucket_layout().save(), copies_of(net->parameters())});
    optimizer.zero_grad();
    model(numbers({5, 20}, group.rank() + 10 * step)).square().sum().backward();
    optimizer.step();
  }
  return states;
}

TEST_CASE("BucketLayout: a resumed run of three ranks has the bits of the one that was not interrupted") {
  const bool own = GENERATE(false, true);
  const bool list = GENERATE(false, true);
  INFO("own engine: " << own << ", caps of single buckets: " << list);
  run_ranks(3, [&](const GroupHandle& group) {
    auto net = make<Deep>(3);
    DistributedDataParallel<Deep> model(net, group, small_buckets(own && group.device().is_cpu(), list));
    const std::vector<Saved> states = train_deep(net, model, group, 0);
    RANK_CHECK(states[0].buckets == "gradient buckets\n");
    RANK_CHECK(states[1].buckets == states.back().buckets);  // known before the buckets are regrouped
    for (const int from : {0, 1, 2, 5}) {
      auto again = make<Deep>(3);
      DistributedDataParallel<Deep> resumed(again, group, small_buckets(own && group.device().is_cpu(), list));
      {
        const torch::NoGradGuard no_grad;
        const auto parameters = again->parameters();
        for (size_t i = 0; i < parameters.size(); ++i)
          parameters[i].copy_(states[static_cast<size_t>(from)].weights[i]);
      }
      resumed->bucket_layout().load(states[static_cast<size_t>(from)].buckets);
      train_deep(again, resumed, group, from);
      const auto parameters = again->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) RANK_CHECK(at::equal(parameters[i], net->parameters()[i]));
      RANK_CHECK(resumed->bucket_layout().save() == states.back().buckets);
    }
  });
}

TEST_CASE("BucketLayout: what a model cannot have is refused, and changes nothing") {
  run_ranks(2, [&](const GroupHandle& group) {
    auto net = make<TwoTypes>(3);
    DistributedDataParallel<TwoTypes> model(net, group);
    const auto before = model->logging_data().bucket_bytes;
    const auto load = [&](const std::string& text) { return message_of([&] { model->bucket_layout().load(text); }); };
    RANK_CHECK_THAT(load("gradient buckets\n0 1\n"), ContainsSubstring("dtypes"));
    RANK_CHECK_THAT(load("gradient buckets\n0\n"), ContainsSubstring("the model has 2"));
    RANK_CHECK_THAT(load("{}"), ContainsSubstring("invalid gradient buckets"));
    RANK_CHECK(model->logging_data().bucket_bytes == before);
    RANK_CHECK(load("gradient buckets\n0\n1\n").empty());
    model(here(torch::ones({4}))).sum().backward();
    expect_close(net->single.grad(), net->precise.detach().to(torch::kFloat));
    expect_close(net->precise.grad(), net->single.detach().to(torch::kDouble));
    RANK_CHECK(load("gradient buckets\n1\n0\n").empty());  // too late, and no fault
  });
}

TEST_CASE("BucketLayout: a single process has none") {
  auto group = init_process_group({.rank_info = RankInfo{}});
  Deep net;
  DistributedDataParallel<Deep> model(net, group);
  CHECK(model->bucket_layout().save() == "gradient buckets\n");
  model->bucket_layout().load("gradient buckets\n0\n");
}

}  // namespace
}  // namespace ddp
