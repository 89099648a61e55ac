// The levels O0 to O3: what they make of options, models and optimizers.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/optim/optimizers.h>

#include "amp/model_cast.h"
#include "examples/models/lenet.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp::amp {
namespace {

using at::kBFloat16;
using at::kFloat;
using at::kHalf;
using at::ScalarType;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::error_of;
using test::here;

const std::string kKind = test::is_on_devices() ? "CUDA" : "CPU";  // as types name it

// --- What options come to

TEST_CASE("Properties: of each level are apex's") {
  const auto of = [](const char* level) { return resolve({.opt_level = level}); };
  const Properties o0 = of("O0"), o1 = of("O1"), o2 = of("O2"), o3 = of("O3");
  CHECK(o0.cast_model_type == kFloat);
  CHECK(o1.cast_model_type == std::nullopt);
  CHECK(o2.cast_model_type == kHalf);
  CHECK(o3.cast_model_type == kHalf);
  CHECK_FALSE((o0.patch_torch_functions || o2.patch_torch_functions || o3.patch_torch_functions));
  CHECK(o1.patch_torch_functions);
  CHECK(o2.keep_batchnorm_fp32);
  CHECK_FALSE(o3.keep_batchnorm_fp32);
  CHECK(o2.master_weights);
  CHECK_FALSE((o0.master_weights || o1.master_weights || o3.master_weights));
  CHECK(o0.loss_scale.value() == 1);
  CHECK(o1.loss_scale.is_dynamic());
  CHECK(o2.loss_scale.is_dynamic());
  CHECK(o3.loss_scale.value() == 1);
  CHECK_FALSE(resolve({.enabled = false, .opt_level = "nonsense"}).enabled);
}

TEST_CASE("Properties: bfloat16 needs no loss scale") {
  for (const char* level : {"O1", "O2"}) {
    CHECK(resolve({.opt_level = level, .dtype = kBFloat16}).loss_scale.value() == 1);
    CHECK(resolve({.opt_level = level, .dtype = kBFloat16, .loss_scale = "dynamic"}).loss_scale.is_dynamic());
  }
  CHECK(resolve({.opt_level = "O2", .dtype = kBFloat16}).cast_model_type == kBFloat16);
}

TEST_CASE("Properties: overrides may be given as values or as apex's texts") {
  CHECK(resolve({.opt_level = "O2", .loss_scale = 128.0}).loss_scale.value() == 128);
  CHECK(resolve({.opt_level = "O2", .loss_scale = "128.0"}).loss_scale.value() == 128);
  CHECK(resolve({.opt_level = "O0", .loss_scale = "dynamic"}).loss_scale.is_dynamic());
  CHECK(resolve({.opt_level = "O3", .keep_batchnorm_fp32 = "True"}).keep_batchnorm_fp32);
  CHECK_FALSE(resolve({.opt_level = "O2", .keep_batchnorm_fp32 = "False"}).keep_batchnorm_fp32);
  CHECK(resolve({.opt_level = "O3", .keep_batchnorm_fp32 = true}).keep_batchnorm_fp32);
  CHECK(resolve({.opt_level = "O3", .master_weights = true}).master_weights);
  CHECK(resolve({.opt_level = "O2", .cast_model_type = kBFloat16}).cast_model_type == kBFloat16);
}

TEST_CASE("Properties: what apex refuses is refused with its words and the rank") {
  const auto message = [](const Options& options) { return error_of([&] { resolve(options, "rank 1 of 2: "); }); };
  CHECK_THAT(message({.opt_level = "O4"}),
             StartsWith("rank 1 of 2: Unexpected optimization level O4. Options are 'O0', 'O1', 'O2', 'O3'."));
  CHECK_THAT(message({.opt_level = "02"}), ContainsSubstring("the letter O, not the number zero"));
  CHECK_THAT(message({.opt_level = "O1", .cast_model_type = kHalf}),
             StartsWith("rank 1 of 2: O1 inserts casts around Torch functions") && ContainsSubstring("was Half"));
  CHECK_THAT(message({.opt_level = "O1", .keep_batchnorm_fp32 = true}),
             ContainsSubstring("keep_batchnorm_fp32 should be None. keep_batchnorm_fp32 was True"));
  CHECK_THAT(message({.opt_level = "O1", .master_weights = false}),
             ContainsSubstring("It doesn't make sense to use master_weights with O1."));
  CHECK_THAT(message({.opt_level = "O2", .patch_torch_functions = true}),
             ContainsSubstring("patch_torch_functions=True should only be set by selecting opt_level='O1'."));
  CHECK(message({.opt_level = "O1", .cast_model_type = kFloat}) == "no error");
  CHECK_THAT(message({.dtype = kFloat}), ContainsSubstring("dtype must be Half or BFloat16, found Float"));
  CHECK_THAT(message({.cast_model_outputs = at::kInt}),
             ContainsSubstring("cast_model_outputs must be a floating-point type"));
  CHECK_THAT(message({.num_losses = 0}), ContainsSubstring("num_losses must be at least 1, found 0"));
  CHECK_THAT(message({.min_loss_scale = 2.0, .max_loss_scale = 1}), ContainsSubstring("min_loss_scale"));
  CHECK_THAT(message({.min_loss_scale = 1e-40}), ContainsSubstring("min_loss_scale must be at least 2^-126"));
  CHECK_THAT(message({.max_loss_scale = 1e-40}), ContainsSubstring("max_loss_scale must be at least 2^-126"));
  CHECK_THROWS_WITH(Flag("true"), ContainsSubstring("the string 'True' or 'False'"));
  for (const char* text : {"", "12x", "inf", "-1", "0", "1e-40", "1e39", "Dynamic"}) {
    INFO(text);
    CHECK_THROWS_WITH(LossScale{text}, ContainsSubstring("loss_scale must be"));
  }
}

TEST_CASE("Levels: the model to call cannot be cloned, but the one in it can") {
  torch::nn::Linear net = test::placed(torch::nn::Linear(2, 1));
  Amp amp = initialize(net, {}, {.opt_level = "O3"});
  auto model = amp.model(net);
  CHECK_THROWS_WITH(model->clone(), ContainsSubstring("amp::Model is a wrapper and cannot be cloned"));
  CHECK(model->module()->clone()->parameters().size() == 2);
}

// --- What becomes of models and optimizers

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("plain_norm", plain_norm);
    register_module("linear", linear);
    register_buffer("shift", shift);
    register_buffer("count", count);
  }
  at::Tensor forward(const at::Tensor& x) { return linear(plain_norm(torch::relu(norm(conv(x)))).flatten(1) + shift); }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 4, 5).stride(4)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::BatchNorm2d plain_norm{torch::nn::BatchNorm2dOptions(4).affine(false)};
  torch::nn::Linear linear{4 * 7 * 7, 10};
  at::Tensor shift = at::ones({4 * 7 * 7}), count = at::ones({}, at::kLong);
};
TORCH_MODULE(Normed);

// A net that tells what its forward received and returned.
template <typename Net>
struct WatchedImpl : torch::nn::Module {
  WatchedImpl() { register_module("net", net); }
  at::Tensor forward(const at::Tensor& x) {
    received = x.scalar_type();
    const at::Tensor y = net(x);
    returned = y.scalar_type();
    return y;
  }
  Net net;
  ScalarType received{}, returned{};
};

bool belongs_to_norm(const std::string& name) {
  return name.find("norm") != std::string::npos;
}

std::vector<ScalarType> types_of(const std::vector<at::Tensor>& tensors) {
  std::vector<ScalarType> types;
  for (const at::Tensor& tensor : tensors) types.push_back(tensor.scalar_type());
  return types;
}

struct Row {
  const char* level;
  ScalarType weights, norms, received, returned, stepped;
};

template <typename Net, typename Optimizer>
void expect_row(const Row& row, ScalarType dtype) {
  INFO(std::string(row.level) + " " + c10::toString(dtype));
  const auto meant = [&](ScalarType type) { return type == kHalf ? dtype : type; };
  const auto watched = std::make_shared<WatchedImpl<Net>>();
  watched->to(test::test_device());
  Optimizer optimizer(watched->parameters(), 0.05);
  Amp amp = initialize(watched, optimizer, {.opt_level = row.level, .dtype = dtype});
  auto model = amp.model(watched);
  const at::Tensor x = here(at::randn({4, 3, 32, 32}, at::detail::createCPUGenerator(7)));
  const at::Tensor labels = here(at::full({4}, 3, at::kLong));
  double first = 0, last = 0;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const CastScope autocast = amp.autocast();
      const at::Tensor y = model(x);
      // Outputs are float32 but at O1, where they are what the last layer gives, as in apex.
      RANK_CHECK(y.scalar_type() == (row.level == std::string("O1") ? dtype : kFloat));
      loss = torch::nn::functional::cross_entropy(y, labels);
    }
    RANK_CHECK(loss.scalar_type() == kFloat);
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  {
    RANK_INFO("it learns");
    RANK_CHECK(last < first);
  }
  RANK_CHECK(watched->received == meant(row.received));
  RANK_CHECK(watched->returned == meant(row.returned));
  for (const auto& item : watched->named_parameters()) {
    const ScalarType expected = belongs_to_norm(item.key()) ? row.norms : row.weights;
    {
      RANK_INFO(item.key());
      RANK_CHECK(item.value().scalar_type() == meant(expected));
    }
    RANK_INFO(item.key());
    RANK_CHECK(item.value().grad().scalar_type() == meant(expected));
  }
  for (const auto& item : watched->named_buffers()) {
    const ScalarType expected = belongs_to_norm(item.key()) ? row.norms : row.weights;
    if (item.value().is_floating_point()) {
      RANK_INFO(item.key());
      RANK_CHECK(item.value().scalar_type() == meant(expected));
    } else {
      RANK_INFO(item.key());
      RANK_CHECK(item.value().scalar_type() == at::kLong);
    }
  }
  for (const auto type : types_of(master_params(optimizer))) RANK_CHECK(type == meant(row.stepped));
}

template <typename Net>
void expect_table(ScalarType dtype) {
  const std::vector<Row> table{{"O0", kFloat, kFloat, kFloat, kFloat, kFloat},
                               {"O1", kFloat, kFloat, kFloat, kHalf, kFloat},
                               {"O2", kHalf, kFloat, kHalf, kHalf, kFloat},
                               {"O3", kHalf, kHalf, kHalf, kHalf, kHalf}};
  for (const Row& row : table) {
    expect_row<Net, torch::optim::SGD>(row, dtype);
    if (row.stepped == kFloat) expect_row<Net, optim::SGD>(row, dtype);
  }
}

TEST_CASE("Levels: types on LeNet are those of the table") {
  for (const ScalarType dtype : {kHalf, kBFloat16}) expect_table<models::LeNet>(dtype);
}
TEST_CASE("Levels: types on a net with batch norms are those of the table") {
  for (const ScalarType dtype : {kHalf, kBFloat16}) expect_table<Normed>(dtype);
}

TEST_CASE("Levels: batch norms are told from other modules") {
  CHECK(detail::is_batch_norm(*torch::nn::BatchNorm1d(2)));
  CHECK(detail::is_batch_norm(*torch::nn::BatchNorm3d(torch::nn::BatchNorm3dOptions(2).track_running_stats(false))));
  CHECK_FALSE(
      detail::is_batch_norm(*torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(2).track_running_stats(true))));
  CHECK_FALSE(detail::is_batch_norm(*torch::nn::Linear(2, 2)));
  torch::nn::Module own("own");
  own.register_buffer("running_mean", at::ones({2}));
  own.register_buffer("running_var", at::ones({2}));
  CHECK(detail::is_batch_norm(own));
}

TEST_CASE("Levels: output type and kept batch norms can be overridden") {
  const auto watched = test::placed(std::make_shared<WatchedImpl<Normed>>());
  torch::optim::SGD optimizer(watched->parameters(), 0.05);
  Amp amp = initialize(watched, optimizer,
                       {.opt_level = "O2", .keep_batchnorm_fp32 = false, .cast_model_outputs = at::kDouble});
  CHECK(watched->net->norm->weight.scalar_type() == kHalf);
  CHECK(amp.model(watched)(here(at::ones({2, 3, 32, 32}))).scalar_type() == at::kDouble);
}

struct Batch {
  std::vector<at::Tensor> images;
  at::Tensor labels;
};
template <typename Visit>
void visit_tensors(Batch& batch, Visit&& visit) {
  visit(batch.images);
  visit(batch.labels);
}

struct TakesAnythingImpl : torch::nn::Module {
  TakesAnythingImpl() { register_parameter("weight", at::ones({2})); }
  std::tuple<at::Tensor, Batch> forward(const Batch& batch, const std::map<std::string, at::Tensor>& extra, int times,
                                        const at::Tensor* untouched, const std::string& text = "") {
    RANK_CHECK(batch.images[1].scalar_type() == kHalf);
    {
      RANK_INFO("no floating-point type");
      RANK_CHECK(batch.labels.scalar_type() == at::kLong);
    }
    RANK_CHECK(extra.at("a").scalar_type() == kHalf);
    RANK_CHECK(untouched->scalar_type() == kFloat);
    RANK_CHECK(times == 3);
    RANK_CHECK(text == "text");
    return {batch.images[0], batch};
  }
};
TORCH_MODULE(TakesAnything);

TEST_CASE("Levels: inputs and outputs are cast wherever they are and the caller's stay") {
  TakesAnything net;
  Amp amp = initialize(net, {}, {.opt_level = "O3"});
  auto model = amp.model(net);
  const Batch batch{{here(at::ones({2})), here(at::ones({2}, at::kDouble))}, here(at::ones({2}, at::kLong))};
  const at::Tensor behind = here(at::ones({}));
  const auto [first, rest] =
      model(batch, std::map<std::string, at::Tensor>{{"a", here(at::ones({}))}}, 3, &behind, "text");
  CHECK(first.scalar_type() == kFloat);
  CHECK(rest.images[1].scalar_type() == kFloat);
  CHECK(rest.labels.scalar_type() == at::kLong);
  INFO("the caller's own");
  CHECK(batch.images[1].scalar_type() == at::kDouble);
}

TEST_CASE("Levels: disabled everything passes through") {
  auto net = test::placed(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  Amp amp = initialize(net, optimizer, {.enabled = false, .opt_level = "O2"});
  CHECK(net->weight.scalar_type() == kFloat);
  torch::nn::init::zeros_(net->bias);  // what random bias - 0.5 is may be rounded
  const at::Tensor loss = amp.model(net)(here(at::ones({1, 2}))).sum();
  {
    const ScaledLoss scaled = amp.scale_loss(loss, optimizer);
    CHECK(scaled.loss().is_same(loss));
    scaled.backward();
  }
  amp.step(optimizer);
  CHECK(net->bias.item<double>() == -0.5);
  amp.zero_grad(optimizer);
  CHECK_FALSE(net->bias.grad().defined());
  CHECK(amp.loss_scale() == 1);
  CHECK(amp.state_dict().empty());
}

// --- What is refused

TEST_CASE("Initialize: a model in 16 bits is refused with the parameter's name") {
  auto net = test::placed(torch::nn::Linear(2, 1));
  net->to(kHalf);
  const GroupHandle group = test::unconnected_rank(1, 2);
  CHECK_THROWS_WITH(
      initialize(net, {}, {.opt_level = "O2", .group = group}),
      StartsWith("rank 1 of 2: Found param weight with type " + kKind + "HalfType, expected " + kKind + "FloatType.") &&
          ContainsSubstring("you do not need to call .half() on your model"));
}

TEST_CASE("Initialize: an optimizer is taken once") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    auto net = test::placed(torch::nn::Linear(2, 1));
    auto other = test::placed(torch::nn::Linear(2, 1));
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    const auto again = [&] { initialize(other, optimizer, {.opt_level = level}); };
    {
      const Amp amp = initialize(net, optimizer, {.opt_level = level});
      INFO(level);
      CHECK(error_of(again) == "rank 0 of 1: A given optimizer should only be passed through amp.initialize once.");
    }
  }
  auto net = test::placed(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  CHECK_THROWS_WITH(initialize(net, {optimizer, optimizer}, {}), ContainsSubstring("once"));
  CHECK_THROWS_WITH(initialize({}, optimizer, {}), ContainsSubstring("no model was given"));
}

TEST_CASE("Levels: a parameter that is listed twice is unscaled once") {
  for (const char* level : {"O1", "O2"}) {
    INFO(level);
    auto net = test::placed(torch::nn::Linear(2, 1));
    const at::Tensor weight = net->weight;
    torch::optim::SGD optimizer({weight, weight, net->bias}, 0.5);
    Amp amp = initialize(net, optimizer, {.opt_level = level, .loss_scale = 8.0});
    const at::Tensor before = net->weight.detach().to(kFloat).clone();
    const at::Tensor x = here(at::full({1, 2}, 2.0));
    amp.scale_loss(net->forward(x.to(net->weight.scalar_type())).sum(), optimizer).backward();
    amp.step(optimizer);
    // torch::optim steps twice on what it has twice.
    const at::Tensor change = before - net->weight.detach().to(kFloat);
    CHECK_THAT(change[0][0].item<double>(), Catch::Matchers::WithinAbs(2 * 0.5 * 2, 0.01));
  }
}

TEST_CASE("Initialize: what is refused is left as it was") {
  auto net = test::placed(torch::nn::Linear(2, 1));
  at::Tensor extra = here(at::ones({2}, at::kDouble)).requires_grad_();
  torch::optim::SGD optimizer({extra}, 0.5);
  CHECK_THROWS_WITH(
      initialize(net, optimizer, {.opt_level = "O2"}),
      ContainsSubstring("Optimizer's parameters must be either torch.cuda.FloatTensor or torch.cuda.HalfTensor. "
                        "Received " +
                        kKind + "DoubleType"));
  CHECK(net->weight.scalar_type() == kFloat);

  torch::optim::Adam used(net->parameters());
  net(here(at::ones({1, 2}))).sum().backward();
  used.step();
  CHECK_THROWS_WITH(initialize(net, used, {.opt_level = "O3"}), ContainsSubstring("initialize before the first"));
  CHECK(net->weight.scalar_type() == kFloat);
}

TEST_CASE("Initialize: strangers are refused later") {
  auto net = test::placed(torch::nn::Linear(2, 1));
  auto other = test::placed(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(net->parameters(), 0.5), stranger(other->parameters(), 0.5);
  const Amp amp = initialize(net, optimizer, {.num_losses = 2});
  CHECK_THROWS_WITH(amp.model(other), ContainsSubstring("expects a model that was passed to amp.initialize"));
  CHECK_THROWS_WITH(amp.step(stranger), ContainsSubstring("this optimizer was not initialized"));
  CHECK_THROWS_WITH([&] { auto scaled = amp.scale_loss(here(at::ones({})), stranger); }(),
                    ContainsSubstring("not initialized"));
  CHECK_THROWS_WITH([&] { auto scaled = amp.scale_loss(here(at::ones({})), optimizer, {.loss_id = 2}); }(),
                    ContainsSubstring("loss_id 2 is out of range: initialize() was called with num_losses=2"));
}

}  // namespace
}  // namespace ddp::amp
