// What ddp::nn's modules are beside their bits, which modules_test.py compares: cloned, printed, contained, wrapped,
// converted.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/linalg_matrix_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/nn/linear.h>
#include <ddprun/nn/multihead_attention.h>
#include <ddprun/nn/transformer.h>
#include <ddprun/nn/weights.h>
#include <ddprun/syncbn/conversion.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using at::Tensor;
using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;

nn::TransformerOptions small_transformer() {
  return nn::TransformerOptions(16, 2, 2, 1).dim_feedforward(24).dropout(0.1).batch_first(true);
}

template <typename Module>
std::string printed(const Module& module) {
  std::ostringstream text;
  text << module;
  return text.str();
}

struct MixedNetImpl : torch::nn::Module {
  MixedNetImpl() {
    register_module("layer", layer);
    register_module("norm", norm);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) { return last(norm(layer(x).mean(1))); }

  nn::TransformerEncoderLayer layer{
      nn::TransformerLayerOptions(16, 2).dim_feedforward(24).dropout(0).batch_first(true)};
  torch::nn::BatchNorm1d norm{16};
  nn::Linear last{16, 2};
};
TORCH_MODULE(MixedNet);

TEST_CASE("nn::Linear: prints, holds its options and is empty of bias where none is wanted") {
  nn::Linear plain(3, 4);
  CHECK(printed(plain) == "ddp::nn::Linear(in_features=3, out_features=4, bias=true)");
  nn::Linear without(torch::nn::LinearOptions(3, 4).bias(false));
  CHECK(printed(without) == "ddp::nn::Linear(in_features=3, out_features=4, bias=false)");
  CHECK(without->parameters().size() == 1);
  CHECK_FALSE(without->bias.defined());
}

TEST_CASE("nn::Linear: loads what torch::nn::Linear saved, and the other way round") {
  torch::nn::Linear theirs(3, 4);
  nn::Linear ours(3, 4);
  std::stringstream there, back;
  torch::save(theirs, there);
  torch::load(ours, there);
  CHECK_THAT(ours->weight, EqualsTensor(theirs->weight));
  nn::Linear other(3, 4);
  torch::save(other, back);
  torch::load(theirs, back);
  CHECK_THAT(theirs->bias, EqualsTensor(other->bias));
}

TEST_CASE("nn: a clone has the values and shares nothing") {
  nn::Transformer original(small_transformer());
  original->eval();
  const auto copy = std::dynamic_pointer_cast<nn::TransformerImpl>(original->clone());
  REQUIRE(copy);
  const auto src = at::randn({2, 5, 16});
  const auto tgt = at::randn({2, 4, 16});
  const auto before = original(src, tgt).detach().clone();
  CHECK_THAT(copy->forward(src, tgt), EqualsTensor(before));
  CHECK_FALSE(copy->is_training());

  REQUIRE(copy->parameters().size() == original->parameters().size());
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : copy->parameters()) parameter.zero_();
  }
  CHECK_THAT(original(src, tgt), EqualsTensor(before));
  CHECK(copy->forward(src, tgt).abs().max().item<float>() == 0);
}

TEST_CASE("nn::to_dtype: converts weights, gradients and statistics, and leaves counters as Python's to() does") {
  MixedNet net;
  net(at::randn({6, 4, 16})).sum().backward();
  const auto weight = net->last->weight;
  const auto gradient = weight.grad().clone();
  nn::to_dtype(net, at::kDouble);
  CHECK(net->last->weight.is_same(weight));
  CHECK(weight.scalar_type() == at::kDouble);
  CHECK(weight.requires_grad());
  CHECK_THAT(weight.grad(), EqualsTensor(gradient.to(at::kDouble)));
  CHECK(net->norm->running_mean.scalar_type() == at::kDouble);
  CHECK(net->norm->num_batches_tracked.scalar_type() == at::kLong);
  CHECK(net->norm->num_batches_tracked.item<int64_t>() == 1);
  CHECK_THAT(error_of<std::invalid_argument>([&] { nn::to_dtype(net, at::kLong); }),
             ContainsSubstring("Long is not a floating-point type"));
}

TEST_CASE("nn::to_dtype: a cumulative average over more than 256 batches stays one in 16 bits") {
  const auto counted = [](auto&& convert) {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(2).momentum(std::nullopt));
    convert(norm);
    for (int i = 0; i < 300; ++i) norm(at::randn({4, 2}, at::kBFloat16));
    return norm->num_batches_tracked.item<int64_t>();
  };
  CHECK(counted([](auto& norm) { nn::to_dtype(norm, at::kBFloat16); }) == 300);
  CHECK(counted([](auto& norm) { norm->to(at::kBFloat16); }) == 256);  // LibTorch's
}

TEST_CASE("nn: an encoder copies its layer and leaves it, its norm and the random numbers as they are") {
  nn::TransformerEncoderLayer layer(nn::TransformerLayerOptions(16, 2).dim_feedforward(24));
  torch::manual_seed(3);
  const auto expected = at::randn({4});
  torch::manual_seed(3);
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(layer, 3));
  CHECK_THAT(at::randn({4}), EqualsTensor(expected));
  CHECK(encoder->named_parameters().size() == 3 * layer->named_parameters().size());
  CHECK_THAT(encoder->named_parameters()["layers.2.linear1.weight"], EqualsTensor(layer->linear1->weight));
  CHECK_FALSE(encoder->named_parameters()["layers.2.linear1.weight"].is_same(layer->linear1->weight));
}

TEST_CASE("nn: torch::nn's options and containers take the modules, with the defaults of their arguments") {
  const auto x = at::randn({5, 3, 16});
  torch::nn::AnyModule attention(nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(16, 2).dropout(0)));
  const auto [output, weights] = attention.forward<std::tuple<Tensor, Tensor>>(x, x, x);
  CHECK(output.sizes() == x.sizes());
  CHECK(weights.sizes() == at::IntArrayRef({3, 5, 5}));
  torch::nn::Sequential net(nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(16, 2).dropout(0)),
                            nn::Linear(16, 2));
  CHECK(net->forward(x).sizes() == at::IntArrayRef({5, 3, 2}));
  torch::nn::AnyModule decoder(nn::TransformerDecoderLayer(torch::nn::TransformerDecoderLayerOptions(16, 2)));
  CHECK(decoder.forward<Tensor>(x, x).sizes() == x.sizes());
  torch::nn::AnyModule whole(nn::Transformer(nn::TransformerOptions(16, 2, 1, 1)));
  CHECK(whole.forward<Tensor>(x, x).sizes() == x.sizes());
}

TEST_CASE("nn::MultiheadAttention: refuses what does not fit, and says what would") {
  CHECK_THAT(error_of([] { nn::MultiheadAttention(10, 3); }), ContainsSubstring("embed_dim is 10 and num_heads 3"));
  nn::MultiheadAttention attention(16, 2);
  const auto x = at::randn({5, 3, 16});
  const auto refused = [&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& padding = {},
                           const Tensor& mask = {}) {
    return error_of<std::invalid_argument>([&] { attention(q, k, v, padding, true, mask); });
  };
  CHECK_THAT(refused(at::randn({5, 3, 15}), x, x), ContainsSubstring("query has the shape [5, 3, 15]"));
  CHECK_THAT(refused(x, at::randn({5, 16}), x), ContainsSubstring("key has the shape [5, 16]"));
  CHECK_THAT(refused(x, x, at::randn({4, 3, 16})), ContainsSubstring("value has the shape [4, 3, 16]"));
  const auto other = at::randn({5, 2, 16});
  CHECK_THAT(refused(x, other, other), ContainsSubstring("the query's batch is needed"));
  CHECK_THAT(refused(x, x, x, at::zeros({5, 3}, at::kBool)), ContainsSubstring("[3, 5] is needed"));
  CHECK_THAT(refused(x, x, x, {}, at::zeros({5, 4})), ContainsSubstring("[5, 5] or [6, 5, 5] is needed"));
  CHECK_THAT(refused(x, x, x, {}, at::zeros({5, 5}, at::kLong)), ContainsSubstring("attn_mask is of Long"));
  CHECK_THAT(error_of<std::invalid_argument>([&] { attention(x, x, x, Tensor(), true, Tensor(), true, true); }),
             ContainsSubstring("pass the causal mask as well"));
}

TEST_CASE("nn::Transformer: refuses batches and sizes that do not fit, and empty encoders") {
  nn::Transformer transformer(small_transformer());
  CHECK_THAT(error_of([&] {
               transformer(at::randn({2, 5, 16}), at::randn({3, 5, 16}));
             }),
             ContainsSubstring("equal batches and d_model = 16 features are needed"));
  CHECK_THAT(error_of([] { nn::TransformerEncoder(nn::TransformerEncoderLayer(16, 2), 0); }),
             ContainsSubstring("num_layers is 0"));
  CHECK_THAT(error_of([] { nn::TransformerDecoder(nn::TransformerDecoderLayer(nullptr), 1); }),
             ContainsSubstring("its holder is empty"));
}

std::vector<std::string> names_of(const torch::nn::Module& module) {
  std::vector<std::string> names = module.named_parameters().keys();
  for (const auto& name : module.named_buffers().keys()) names.push_back(name);
  return names;
}

TEST_CASE("nn::weight_norm: has Python's names, and the value that the layer had") {
  torch::nn::Linear layer(3, 4);
  const auto weight = layer->weight;
  const auto before = weight.detach().clone();
  auto normed = nn::weight_norm(layer);
  CHECK(names_of(*normed) ==
        std::vector<std::string>{"bias", "parametrizations.weight.original0", "parametrizations.weight.original1"});
  CHECK(normed->named_parameters()["parametrizations.weight.original1"].is_same(weight));
  CHECK(normed->named_parameters()["parametrizations.weight.original0"].sizes() == at::IntArrayRef({4, 1}));
  CHECK(normed->weight().allclose(before, 1e-6));
  CHECK_THAT(printed(*normed), ContainsSubstring("ddp::nn::Parametrized(torch::nn::Linear(in_features=3, ") &&
                                   ContainsSubstring("(weight): ddp::nn::WeightNorm"));
  CHECK_THROWS_AS(nn::weight_norm(torch::nn::Linear(3, 4), {.dim = 2}), c10::Error);
}

TEST_CASE("nn::spectral_norm: has Python's names and bounds the largest singular value") {
  auto normed = nn::spectral_norm(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3)));
  CHECK(names_of(*normed) == std::vector<std::string>{"bias", "parametrizations.weight.original",
                                                      "parametrizations.weight.0._u", "parametrizations.weight.0._v"});
  for (int i = 0; i < 50; ++i) normed->weight();
  CHECK(std::abs(at::linalg_matrix_norm(normed->weight().flatten(1), 2).item<double>() - 1) < 1e-3);
  normed->eval();
  const auto vectors = normed->named_buffers()["parametrizations.weight.0._u"].clone();
  normed->forward(at::randn({1, 4, 5, 5}));
  CHECK_THAT(normed->named_buffers()["parametrizations.weight.0._u"], EqualsTensor(vectors));
  CHECK_THAT(error_of<std::invalid_argument>([] { nn::spectral_norm(torch::nn::Linear(3, 4), {.dim = 2}); }),
             ContainsSubstring("expected to be in range of [-2, 1] but got 2"));
  CHECK_THAT(
      error_of<std::invalid_argument>([] { nn::spectral_norm(torch::nn::Linear(3, 4), {.n_power_iterations = 0}); }),
      ContainsSubstring("got n_power_iterations=0"));
}

TEST_CASE("nn::Parametrized: is cloned, converted, saved, trained and contained as other layers") {
  const auto x = at::randn({5, 6});
  const auto trained = [&](auto layer) {
    const auto copy = std::dynamic_pointer_cast<typename decltype(layer)::ContainedType>(layer->clone());
    REQUIRE(copy);
    CHECK(names_of(*copy) == names_of(*layer));
    copy->eval();
    layer->eval();
    const auto before = layer->forward(x).detach().clone();
    CHECK_THAT(copy->forward(x), EqualsTensor(before));
    layer->train();
    layer->forward(x).square().sum().backward();
    torch::optim::SGD(layer->parameters(), 0.1).step();
    layer->eval();
    CHECK_FALSE(layer->forward(x).equal(before));
    CHECK_THAT(copy->forward(x), EqualsTensor(before));

    std::stringstream file;
    torch::save(layer, file);
    auto loaded = decltype(layer)(copy);
    torch::load(loaded, file);
    CHECK_THAT(copy->forward(x), EqualsTensor(layer->forward(x)));
    layer->to(at::kDouble);
    CHECK(layer->forward(x.to(at::kDouble)).scalar_type() == at::kDouble);
    torch::nn::Sequential net(layer, nn::Linear(4, 2));
    net->to(at::kFloat);
    CHECK(net->forward(x).sizes() == at::IntArrayRef({5, 2}));
    CHECK(net->named_parameters().contains("0.parametrizations.weight.original") !=
          net->named_parameters().contains("0.parametrizations.weight.original0"));
  };
  trained(nn::weight_norm(nn::Linear(6, 4)));
  trained(nn::spectral_norm(nn::Linear(6, 4)));
  trained(nn::spectral_norm(std::make_shared<torch::nn::LinearImpl>(6, 4)));
}

// --- With the rest of the library

TEST_CASE("nn::Parametrized: two ranks with DistributedDataParallel follow one process with the whole batch") {
  const auto x = at::randn({6, 5}, at::kDouble);
  auto target = nn::spectral_norm(nn::Linear(5, 3));
  target->to(at::kDouble);
  const auto copied = [&] {
    return nn::Parametrized<nn::Linear>(std::dynamic_pointer_cast<nn::ParametrizedImpl<nn::Linear>>(target->clone()));
  };
  auto whole = copied();
  whole->forward(x).square().mean().backward();
  std::vector<nn::Parametrized<nn::Linear>> nets = {copied(), copied()};
  test::run_ranks(2, [&](const GroupHandle& group) {
    const auto rank = static_cast<size_t>(group.rank());
    DistributedDataParallel<nn::Parametrized<nn::Linear>> model(nets[rank], group);
    model(x.chunk(2)[rank]).square().mean().backward();
    for (const auto& item : nets[rank]->named_parameters()) {
      RANK_INFO(item.key());
      RANK_CHECK(item.value().grad().allclose(whole->named_parameters()[item.key()].grad(), 1e-9, 1e-12));
    }
  });
}

MixedNet seeded() {
  static std::mutex mutex;  // of the generator that all ranks share
  const std::lock_guard lock(mutex);
  torch::manual_seed(5);
  MixedNet net;
  net->to(at::kDouble);
  return net;
}

TEST_CASE("nn: two ranks with DistributedDataParallel and SyncBatchNorm follow one process with the whole batch") {
  auto generator = at::detail::createCPUGenerator(11);
  const auto batch = at::randn({6, 4, 16}, generator, at::kDouble);
  auto whole = seeded();
  whole(batch).square().mean().backward();
  test::run_ranks(2, [&](const GroupHandle& group) {
    auto net = seeded();
    RANK_CHECK(convert_sync_batchnorm(net, group) == 1);
    DistributedDataParallel<MixedNet> model(net, group);
    model(batch.chunk(2)[static_cast<size_t>(group.rank())]).square().mean().backward();
    for (const auto& item : net->named_parameters()) {
      RANK_INFO(item.key());
      RANK_CHECK(item.value().grad().allclose(whole->named_parameters()[item.key()].grad(), 1e-9, 1e-12));
    }
  });
}

TEST_CASE("nn: amp's levels cast the modules as they do LibTorch's") {
  const auto x = at::randn({6, 4, 16});
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    DYNAMIC_SECTION(level) {
      MixedNet net;
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      auto amp = amp::initialize(net, optimizer, {.opt_level = level, .dtype = at::kBFloat16});
      auto model = amp.model(net);
      const auto narrow = std::string(level) >= "O2" ? at::kBFloat16 : at::kFloat;
      CHECK(net->last->weight.scalar_type() == narrow);
      CHECK(net->layer->self_attn->in_proj_weight.scalar_type() == narrow);
      const auto loss = model(x).to(at::kFloat).square().mean();
      amp.scale_loss(loss, optimizer).backward();
      amp.step(optimizer);
      CHECK(net->last->weight.grad().defined());
    }
  }
}

}  // namespace
}  // namespace ddp
