// One rank of a job of fully sharded models that fsdp_test.py has drawn: fsdp_program CASES RESULT. Its Python twin is
// fsdp_program.py.
//
// CASES: {"programs": [{"layers": […], …}, …]}. Writes for each program losses, norms, and this rank's shards and
// gradients after the last step, as {"dtype", "shape", "bytes"}.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/report.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

// Programs of tests are compiled together.
namespace fsdp_program {
namespace {

using nlohmann::json;

const std::map<std::string, at::ScalarType> kFloats{
    {"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}};

// The same numbers in both languages.
at::Tensor values_of(const std::vector<int64_t>& shape, int64_t seed, double divisor) {
  const at::Tensor number = at::arange(c10::multiply_integers(shape), at::kLong);
  const at::Tensor whole = number.mul(7919).add(seed * 104729).remainder(2001).sub(1000);
  return whole.to(at::kDouble).div(divisor).to(at::kFloat).view(shape);
}

class Part : public torch::nn::Module {
 public:
  Part(int64_t in, int64_t out, bool has_bias) {
    weight = register_parameter("weight", at::zeros({out, in}));
    if (has_bias) bias = register_parameter("bias", at::zeros({out}));
  }
  at::Tensor forward(const at::Tensor& input) const { return at::linear(input, weight, bias); }

  at::Tensor weight, bias;
};

class Layer : public torch::nn::Module {
 public:
  explicit Layer(const json& spec) : kind_(spec.at("kind")) {
    const int64_t in = spec.at("in");
    const int64_t out = spec.at("out");
    const bool has_bias = spec.at("bias");
    if (kind_ == "embedding" || kind_ == "norm") {
      weight_ = register_parameter(
          "weight", at::zeros(kind_ == "norm" ? std::vector<int64_t>{out} : std::vector<int64_t>{in, out}));
      if (kind_ == "norm") bias_ = register_parameter("bias", at::zeros({out}));
      return;
    }
    a_ = register_module("a", std::make_shared<Part>(in, out, has_bias));
    if (kind_ == "block") c_ = register_module("c", std::make_shared<Part>(out, out, has_bias));
    if (kind_ == "unused") unused_ = register_parameter("unused", at::zeros({out}));
  }

  at::Tensor forward(const at::Tensor& input) {
    if (kind_ == "embedding") return at::embedding(weight_, input);
    if (kind_ == "norm") return at::layer_norm(input, {weight_.size(0)}, weight_, bias_);
    const at::Tensor hidden = at::relu(a_->forward(input));
    return c_ ? hidden + at::relu(c_->forward(hidden)) : hidden;
  }

 private:
  std::string kind_;
  at::Tensor weight_, bias_, unused_;
  std::shared_ptr<Part> a_, c_;
};

class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(const json& spec) {
    for (const json& layer : spec.at("layers")) {
      if (layer.at("kind") == "again") {
        const size_t earlier = layer.at("layer");
        order_.push_back(order_.at(earlier));
        continue;
      }
      auto made = register_module("l" + std::to_string(order_.size()), std::make_shared<Layer>(layer));
      order_.push_back(std::move(made));
    }
    if (spec.at("head").get<bool>()) head_ = register_module("head", std::make_shared<Part>(spec.at("width"), 3, true));
    int64_t seed = spec.at("seed");
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      const std::string& name = parameter.key();
      const double divisor = name.find("bias") == std::string::npos ? 3000 : 10000;
      parameter.value().copy_(values_of(parameter.value().sizes().vec(), seed++, divisor));
      for (const json& frozen : spec.at("frozen")) {
        if (frozen == name) parameter.value().set_requires_grad(false);
      }
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input;
    for (const auto& layer : order_) x = layer->forward(x);
    return head_ ? head_->forward(x) : x;
  }

 private:
  std::vector<std::shared_ptr<Layer>> order_;
  std::shared_ptr<Part> head_;
};
TORCH_MODULE(Net);

std::optional<at::ScalarType> dtype_of(const json& policy, const char* name) {
  if (!policy.contains(name) || policy.at(name).is_null()) return std::nullopt;
  return kFloats.at(policy.at(name));
}

class Training {
 public:
  Training(const json& spec, const ddp::GroupHandle& group) : spec_(spec), group_(group), model_(make_model()) {
    for (const auto& parameter : model_->named_parameters()) {
      (is_listed("ignored", parameter.key()) ? ignored_ : parameters_).push_back(parameter.value());
    }
    apply_settings();
    // Python has no fused kernel of SGD for shards.
    if (spec.at("optimizer") == "sgd") {
      optimizer_ = std::make_unique<torch::optim::SGD>(parameters_,
                                                       torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
    } else {
      optimizer_ = std::make_unique<ddp::optim::AdamW>(parameters_, torch::optim::AdamWOptions(0.01));
    }
  }

  std::vector<at::Tensor> run() {
    std::vector<at::Tensor> results;
    for (int step = 0; step < spec_.at("steps").get<int>(); ++step) {
      optimizer_->zero_grad();
      for (const json& unit : spec_.at("unshard")) model_->unit(unit.at(0)).unshard(unit.at(1).get<bool>());
      for (const at::Tensor& loss : train(step)) results.push_back(loss);
      if (spec_.at("evaluates").get<bool>()) results.push_back(evaluate(step));
      if (spec_.at("evaluates").get<bool>() || !spec_.at("reshards").get<bool>()) model_->reshard();
      if (const double limit = spec_.at("clip"); limit > 0) {
        const double type = spec_.at("norm_type");
        results.push_back(model_->clip_grad_norm_(limit, type == 0 ? std::numeric_limits<double>::infinity() : type));
      }
      optimizer_->step();
    }
    for (const at::Tensor& parameter : parameters_) {
      results.push_back(parameter.detach());
      results.push_back(parameter.grad().defined() ? parameter.grad() : at::ones({0}));
    }
    for (const at::Tensor& parameter : ignored_) {
      results.push_back(parameter.detach());
      results.push_back(parameter.grad().defined() ? parameter.grad() : at::ones({0}));
    }
    return results;
  }

 private:
  ddp::FullySharded<Net> make_model() {
    ddp::FullyShardOptions options;
    for (const json& names : spec_.at("units"))
      options.units.push_back(ddp::together(names.get<std::vector<std::string>>()));
    if (!spec_.at("reshard_after_forward").is_null())
      options.reshard_after_forward = spec_.at("reshard_after_forward").get<bool>();
    const json& policy = spec_.at("policy");
    options.policy = {.param_dtype = dtype_of(policy, "param_dtype"),
                      .reduce_dtype = dtype_of(policy, "reduce_dtype"),
                      .output_dtype = dtype_of(policy, "output_dtype")};
    Net net(spec_);
    if (spec_.at("offload").get<bool>()) options.offload = ddp::CpuOffload{.pin_memory = false};
    for (const auto& parameter : net->named_parameters()) {
      if (is_listed("ignored", parameter.key())) options.ignored_params.push_back(parameter.value());
    }
    if (spec_.at("replicas").get<int>() == 0) return ddp::fully_shard(net, group_, options);
    const int replicas = spec_.at("replicas");
    mesh_.emplace(ddp::init_device_mesh(group_, {replicas, group_.size() / replicas}, {"replicate", "shard"}));
    return ddp::fully_shard(net, *mesh_, options);
  }

  at::Tensor input(int64_t step, int64_t micro) const {
    const int64_t seed = 1000 + step * 64 + micro * 16 + group_.rank();
    const int64_t batch = spec_.at("batch");
    if (spec_.at("layers").at(0).at("kind") != "embedding") {
      return values_of({batch, spec_.at("layers").at(0).at("in")}, seed, 900);
    }
    return at::arange(batch).mul(7).add(seed).remainder(spec_.at("layers").at(0).at("in").get<int64_t>());
  }

  bool is_listed(const char* list, const std::string& name) const {
    for (const json& one : spec_.at(list)) {
      if (one == name) return true;
    }
    return false;
  }

  void apply_settings() {
    if (!spec_.at("divide").is_null()) model_->set_gradient_divide_factor(spec_.at("divide").get<double>());
    model_->set_force_sum_reduction_for_comms(spec_.at("only_sums").get<bool>());
    model_->set_reduce_scatter_unused_params(spec_.at("reduce_unused").get<bool>());
    if (!spec_.at("reshard_all").is_null()) model_->set_reshard_after_forward(spec_.at("reshard_all").get<bool>());
    for (const json& unit : spec_.at("unit_reshard")) model_->unit(unit.at(0)).set_reshard_after_forward(unit.at(1));
    for (const json& unit : spec_.at("no_unshard")) model_->unit(unit).set_unshard_in_backward(false);
    for (const json& unit : spec_.at("forward_prefetch")) {
      model_->unit(unit.at(0)).set_modules_to_forward_prefetch(unit.at(1).get<std::vector<std::string>>());
    }
    for (const json& unit : spec_.at("backward_prefetch")) {
      model_->unit(unit.at(0)).set_modules_to_backward_prefetch(unit.at(1).get<std::vector<std::string>>());
    }
  }

  std::vector<at::Tensor> train(int step) {
    const int micros = spec_.at("micro");
    const bool is_interleaved = spec_.at("interleaved");
    std::vector<at::Tensor> losses;
    for (int micro = 0; micro < micros; ++micro) {
      losses.push_back(forward(step, micro));
      if (!is_interleaved) backward(losses.back(), micro);
    }
    for (int micro = 0; is_interleaved && micro < micros; ++micro) backward(losses[static_cast<size_t>(micro)], micro);
    for (at::Tensor& loss : losses) loss = loss.detach();
    return losses;
  }

  at::Tensor forward(int step, int micro) {
    model_->set_reshard_after_backward(spec_.at("reshards").get<bool>());
    at::Tensor data = input(step, micro);
    if (spec_.at("input_grad").get<bool>() && data.is_floating_point()) data.set_requires_grad(true);
    const at::Tensor output = model_(data);
    return (output * output).to(at::kFloat).mean();
  }

  void backward(const at::Tensor& loss, int micro) {
    const bool is_last = micro + 1 == spec_.at("micro").get<int>();
    const std::string accumulate = spec_.at("accumulate");
    model_->set_requires_gradient_sync(is_last || accumulate != "keep");
    model_->set_requires_all_reduce(is_last || accumulate != "partial");
    model_->set_is_last_backward(is_last || !spec_.at("says_last").get<bool>());
    loss.backward();
  }

  at::Tensor evaluate(int step) {
    const torch::NoGradGuard no_grad;
    return model_(input(step, 3)).to(at::kFloat).sum();
  }

  const json& spec_;
  const ddp::GroupHandle& group_;
  std::optional<ddp::DeviceMesh> mesh_;
  ddp::FullySharded<Net> model_;
  std::vector<at::Tensor> parameters_, ignored_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

json bytes_as_json(const std::vector<at::Tensor>& tensors) {
  json list = json::array();
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor plain = tensor.detach().contiguous();
    std::string hex;
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
      hex += digits;
    }
    list.push_back({{"shape", plain.sizes().vec()}, {"bytes", hex}});
  }
  return list;
}

}  // namespace
}  // namespace fsdp_program

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("two arguments are needed");
  std::ifstream file(argv[1]);
  const nlohmann::json cases = nlohmann::json::parse(file);
  const ddp::ProcessGroup group = ddp::init_process_group();
  nlohmann::json results = nlohmann::json::array();
  for (const nlohmann::json& spec : cases.at("programs"))
    results.push_back(fsdp_program::bytes_as_json(fsdp_program::Training(spec, group).run()));
  std::ofstream(argv[2]) << results;
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
