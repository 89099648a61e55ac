// The levels O0 to O3: what they make of options, models and optimizers.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <string>

#include "amp/amp.h"
#include "amp/model_cast.h"
#include "examples/models/lenet.h"
#include "optim/sgd.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace ddp::amp {
namespace {

using at::kBFloat16;
using at::kFloat;
using at::kHalf;
using at::ScalarType;
using test::error_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// --- What options come to

TEST(Properties, of_each_level_are_apexs) {
  const auto of = [](const char* level) { return resolve({.opt_level = level}); };
  const Properties o0 = of("O0"), o1 = of("O1"), o2 = of("O2"), o3 = of("O3");
  EXPECT_EQ(o0.cast_model_type, kFloat);
  EXPECT_EQ(o1.cast_model_type, std::nullopt);
  EXPECT_EQ(o2.cast_model_type, kHalf);
  EXPECT_EQ(o3.cast_model_type, kHalf);
  EXPECT_FALSE(o0.patch_torch_functions || o2.patch_torch_functions || o3.patch_torch_functions);
  EXPECT_TRUE(o1.patch_torch_functions);
  EXPECT_TRUE(o2.keep_batchnorm_fp32);
  EXPECT_FALSE(o3.keep_batchnorm_fp32);
  EXPECT_TRUE(o2.master_weights);
  EXPECT_FALSE(o0.master_weights || o1.master_weights || o3.master_weights);
  EXPECT_EQ(o0.loss_scale.value(), 1);
  EXPECT_TRUE(o1.loss_scale.is_dynamic());
  EXPECT_TRUE(o2.loss_scale.is_dynamic());
  EXPECT_EQ(o3.loss_scale.value(), 1);
  EXPECT_FALSE(resolve({.enabled = false, .opt_level = "nonsense"}).enabled);
}

TEST(Properties, bfloat16_needs_no_loss_scale) {
  for (const char* level : {"O1", "O2"}) {
    EXPECT_EQ(resolve({.opt_level = level, .dtype = kBFloat16}).loss_scale.value(), 1);
    EXPECT_TRUE(resolve({.opt_level = level, .dtype = kBFloat16, .loss_scale = "dynamic"}).loss_scale.is_dynamic());
  }
  EXPECT_EQ(resolve({.opt_level = "O2", .dtype = kBFloat16}).cast_model_type, kBFloat16);
}

TEST(Properties, overrides_may_be_given_as_values_or_as_apexs_texts) {
  EXPECT_EQ(resolve({.opt_level = "O2", .loss_scale = 128.0}).loss_scale.value(), 128);
  EXPECT_EQ(resolve({.opt_level = "O2", .loss_scale = "128.0"}).loss_scale.value(), 128);
  EXPECT_TRUE(resolve({.opt_level = "O0", .loss_scale = "dynamic"}).loss_scale.is_dynamic());
  EXPECT_TRUE(resolve({.opt_level = "O3", .keep_batchnorm_fp32 = "True"}).keep_batchnorm_fp32);
  EXPECT_FALSE(resolve({.opt_level = "O2", .keep_batchnorm_fp32 = "False"}).keep_batchnorm_fp32);
  EXPECT_TRUE(resolve({.opt_level = "O3", .keep_batchnorm_fp32 = true}).keep_batchnorm_fp32);
  EXPECT_TRUE(resolve({.opt_level = "O3", .master_weights = true}).master_weights);
  EXPECT_EQ(resolve({.opt_level = "O2", .cast_model_type = kBFloat16}).cast_model_type, kBFloat16);
}

TEST(Properties, what_apex_refuses_is_refused_with_its_words_and_the_rank) {
  const auto message = [](const Options& options) { return error_of([&] { resolve(options, "rank 1 of 2: "); }); };
  EXPECT_THAT(message({.opt_level = "O4"}),
              StartsWith("rank 1 of 2: Unexpected optimization level O4. Options are 'O0', 'O1', 'O2', 'O3'."));
  EXPECT_THAT(message({.opt_level = "02"}), HasSubstr("the letter O, not the number zero"));
  EXPECT_THAT(message({.opt_level = "O1", .cast_model_type = kHalf}),
              AllOf(StartsWith("rank 1 of 2: O1 inserts casts around Torch functions"), HasSubstr("was Half")));
  EXPECT_THAT(message({.opt_level = "O1", .keep_batchnorm_fp32 = true}),
              HasSubstr("keep_batchnorm_fp32 should be None. keep_batchnorm_fp32 was True"));
  EXPECT_THAT(message({.opt_level = "O1", .master_weights = false}),
              HasSubstr("It doesn't make sense to use master_weights with O1."));
  EXPECT_THAT(message({.opt_level = "O2", .patch_torch_functions = true}),
              HasSubstr("patch_torch_functions=True should only be set by selecting opt_level='O1'."));
  EXPECT_EQ(message({.opt_level = "O1", .cast_model_type = kFloat}), "no error");
  EXPECT_THAT(message({.dtype = kFloat}), HasSubstr("dtype must be Half or BFloat16, found Float"));
  EXPECT_THAT(message({.cast_model_outputs = at::kInt}), HasSubstr("cast_model_outputs must be a floating-point type"));
  EXPECT_THAT(message({.num_losses = 0}), HasSubstr("num_losses must be at least 1, found 0"));
  EXPECT_THAT(message({.min_loss_scale = 2.0, .max_loss_scale = 1}), HasSubstr("min_loss_scale"));
  EXPECT_THAT(error_of([] { Flag("true"); }), HasSubstr("the string 'True' or 'False'"));
  for (const char* text : {"", "12x", "inf", "-1", "0", "Dynamic"}) {
    EXPECT_THAT(error_of([&] { LossScale{text}; }), HasSubstr("loss_scale must be")) << text;
  }
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
  SCOPED_TRACE(std::string(row.level) + " " + c10::toString(dtype));
  const auto meant = [&](ScalarType type) { return type == kHalf ? dtype : type; };
  const auto watched = std::make_shared<WatchedImpl<Net>>();
  Optimizer optimizer(watched->parameters(), 0.05);
  Amp amp = initialize(watched, optimizer, {.opt_level = row.level, .dtype = dtype});
  auto model = amp.model(watched);
  const at::Tensor x = at::randn({4, 3, 32, 32}, at::detail::createCPUGenerator(7));
  const at::Tensor labels = at::full({4}, 3, at::kLong);
  double first = 0, last = 0;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const CastScope autocast = amp.autocast();
      const at::Tensor y = model(x);
      // Outputs are float32 but at O1, where they are what the last layer gives, as in apex.
      EXPECT_EQ(y.scalar_type(), row.level == std::string("O1") ? dtype : kFloat);
      loss = torch::nn::functional::cross_entropy(y, labels);
    }
    EXPECT_EQ(loss.scalar_type(), kFloat);
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first) << "it learns";
  EXPECT_EQ(watched->received, meant(row.received));
  EXPECT_EQ(watched->returned, meant(row.returned));
  for (const auto& item : watched->named_parameters()) {
    const ScalarType expected = belongs_to_norm(item.key()) ? row.norms : row.weights;
    EXPECT_EQ(item.value().scalar_type(), meant(expected)) << item.key();
    EXPECT_EQ(item.value().grad().scalar_type(), meant(expected)) << item.key();
  }
  for (const auto& item : watched->named_buffers()) {
    const ScalarType expected = belongs_to_norm(item.key()) ? row.norms : row.weights;
    if (item.value().is_floating_point()) {
      EXPECT_EQ(item.value().scalar_type(), meant(expected)) << item.key();
    } else {
      EXPECT_EQ(item.value().scalar_type(), at::kLong) << item.key();
    }
  }
  EXPECT_THAT(types_of(master_params(optimizer)), Each(meant(row.stepped)));
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

TEST(Levels, types_on_lenet_are_those_of_the_table) {
  for (const ScalarType dtype : {kHalf, kBFloat16}) expect_table<models::LeNet>(dtype);
}
TEST(Levels, types_on_a_net_with_batch_norms_are_those_of_the_table) {
  for (const ScalarType dtype : {kHalf, kBFloat16}) expect_table<Normed>(dtype);
}

TEST(Levels, batch_norms_are_told_from_other_modules) {
  EXPECT_TRUE(detail::is_batch_norm(*torch::nn::BatchNorm1d(2)));
  EXPECT_TRUE(
      detail::is_batch_norm(*torch::nn::BatchNorm3d(torch::nn::BatchNorm3dOptions(2).track_running_stats(false))));
  EXPECT_FALSE(
      detail::is_batch_norm(*torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(2).track_running_stats(true))));
  EXPECT_FALSE(detail::is_batch_norm(*torch::nn::Linear(2, 2)));
  torch::nn::Module own("own");
  own.register_buffer("running_mean", at::ones({2}));
  own.register_buffer("running_var", at::ones({2}));
  EXPECT_TRUE(detail::is_batch_norm(own));
}

TEST(Levels, output_type_and_kept_batch_norms_can_be_overridden) {
  const auto watched = std::make_shared<WatchedImpl<Normed>>();
  torch::optim::SGD optimizer(watched->parameters(), 0.05);
  Amp amp = initialize(watched, optimizer,
                       {.opt_level = "O2", .keep_batchnorm_fp32 = false, .cast_model_outputs = at::kDouble});
  EXPECT_EQ(watched->net->norm->weight.scalar_type(), kHalf);
  EXPECT_EQ(amp.model(watched)(at::ones({2, 3, 32, 32})).scalar_type(), at::kDouble);
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
    EXPECT_EQ(batch.images[1].scalar_type(), kHalf);
    EXPECT_EQ(batch.labels.scalar_type(), at::kLong) << "no floating-point type";
    EXPECT_EQ(extra.at("a").scalar_type(), kHalf);
    EXPECT_EQ(untouched->scalar_type(), kFloat);
    EXPECT_EQ(times, 3);
    EXPECT_EQ(text, "text");
    return {batch.images[0], batch};
  }
};
TORCH_MODULE(TakesAnything);

TEST(Levels, inputs_and_outputs_are_cast_wherever_they_are_and_the_callers_stay) {
  TakesAnything net;
  Amp amp = initialize(net, {}, {.opt_level = "O3"});
  auto model = amp.model(net);
  const Batch batch{{at::ones({2}), at::ones({2}, at::kDouble)}, at::ones({2}, at::kLong)};
  const at::Tensor behind = at::ones({});
  const auto [first, rest] = model(batch, std::map<std::string, at::Tensor>{{"a", at::ones({})}}, 3, &behind, "text");
  EXPECT_EQ(first.scalar_type(), kFloat);
  EXPECT_EQ(rest.images[1].scalar_type(), kFloat);
  EXPECT_EQ(rest.labels.scalar_type(), at::kLong);
  EXPECT_EQ(batch.images[1].scalar_type(), at::kDouble) << "the caller's own";
}

TEST(Levels, disabled_everything_passes_through) {
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  Amp amp = initialize(net, optimizer, {.enabled = false, .opt_level = "O2"});
  EXPECT_EQ(net->weight.scalar_type(), kFloat);
  torch::nn::init::zeros_(net->bias);  // what random bias - 0.5 is may be rounded
  const at::Tensor loss = amp.model(net)(at::ones({1, 2})).sum();
  {
    const ScaledLoss scaled = amp.scale_loss(loss, optimizer);
    EXPECT_TRUE(scaled.loss().is_same(loss));
    scaled.backward();
  }
  amp.step(optimizer);
  EXPECT_EQ(net->bias.item<double>(), -0.5);
  amp.zero_grad(optimizer);
  EXPECT_FALSE(net->bias.grad().defined());
  EXPECT_EQ(amp.loss_scale(), 1);
  EXPECT_TRUE(amp.state_dict().empty());
}

// --- What is refused

TEST(Initialize, a_model_in_16_bits_is_refused_with_the_parameters_name) {
  torch::nn::Linear net(2, 1);
  net->to(kHalf);
  const GroupHandle group = test::unconnected_rank(1, 2);
  EXPECT_THAT(error_of([&] { initialize(net, {}, {.opt_level = "O2", .group = group}); }),
              AllOf(StartsWith("rank 1 of 2: Found param weight with type CPUHalfType, expected CPUFloatType."),
                    HasSubstr("you do not need to call .half() on your model")));
}

TEST(Initialize, an_optimizer_is_taken_once) {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    torch::nn::Linear net(2, 1), other(2, 1);
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    const auto again = [&] { initialize(other, optimizer, {.opt_level = level}); };
    {
      const Amp amp = initialize(net, optimizer, {.opt_level = level});
      EXPECT_EQ(error_of(again), "rank 0 of 1: A given optimizer should only be passed through amp.initialize once.")
          << level;
    }
  }
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  EXPECT_THAT(error_of([&] { initialize(net, {optimizer, optimizer}, {}); }), HasSubstr("once"));
  EXPECT_THAT(error_of([&] { initialize({}, optimizer, {}); }), HasSubstr("no model was given"));
}

TEST(Initialize, what_is_refused_is_left_as_it_was) {
  torch::nn::Linear net(2, 1);
  at::Tensor extra = at::ones({2}, at::kDouble).requires_grad_();
  torch::optim::SGD optimizer({extra}, 0.5);
  EXPECT_THAT(error_of([&] { initialize(net, optimizer, {.opt_level = "O2"}); }),
              HasSubstr("Optimizer's parameters must be either torch.cuda.FloatTensor or torch.cuda.HalfTensor. "
                        "Received CPUDoubleType"));
  EXPECT_EQ(net->weight.scalar_type(), kFloat);

  torch::optim::Adam used(net->parameters());
  net(at::ones({1, 2})).sum().backward();
  used.step();
  EXPECT_THAT(error_of([&] { initialize(net, used, {.opt_level = "O3"}); }), HasSubstr("initialize before the first"));
  EXPECT_EQ(net->weight.scalar_type(), kFloat);
}

TEST(Initialize, strangers_are_refused_later) {
  torch::nn::Linear net(2, 1), other(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.5), stranger(other->parameters(), 0.5);
  const Amp amp = initialize(net, optimizer, {.num_losses = 2});
  EXPECT_THAT(error_of([&] { amp.model(other); }), HasSubstr("wants a model that was passed to amp.initialize"));
  EXPECT_THAT(error_of([&] { amp.step(stranger); }), HasSubstr("this optimizer was not initialized"));
  EXPECT_THAT(error_of([&] { auto scaled = amp.scale_loss(at::ones({}), stranger); }), HasSubstr("not initialized"));
  EXPECT_THAT(error_of([&] { auto scaled = amp.scale_loss(at::ones({}), optimizer, {.loss_id = 2}); }),
              HasSubstr("loss_id 2 is out of range: initialize() was told num_losses=2"));
}

}  // namespace
}  // namespace ddp::amp
