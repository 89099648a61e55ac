// Functions of torch::nn::functional that no module has, torch::nn::init, torch::nn::utils and steps of torch::optim:
// see subjects.h.
#include <torch/torch.h>

#include "tests/nn/subjects.h"

namespace ddp::test {

namespace {
namespace F = torch::nn::functional;
namespace init = torch::nn::init;

void add_functional(Subjects& add) {
  add["functional.linear"] = function([](Tensors& x) { return F::linear(x[0], x[1], x[2]); });
  add["functional.linear, no bias"] = function([](Tensors& x) { return F::linear(x[0], x[1]); });
  add["functional.normalize"] = function([](Tensors& x) { return F::normalize(x[0]); });
  add["functional.gumbel_softmax"] = function([](Tensors& x) { return F::gumbel_softmax(x[0]); });
  add["functional.gumbel_softmax, hard"] =
      function([](Tensors& x) { return F::gumbel_softmax(x[0], F::GumbelSoftmaxFuncOptions().hard(true)); });
  add["functional.one_hot"] = function([](Tensors& x) { return F::one_hot(x[0], 20); });
  add["functional.pdist"] = function([](Tensors& x) { return F::pdist(x[0]); });
  add["functional.grid_sample"] =
      function([](Tensors& x) { return F::grid_sample(x[0], x[1], F::GridSampleFuncOptions().align_corners(false)); });
  add["functional.affine_grid"] = function([](Tensors& x) { return F::affine_grid(x[0], {2, 3, 5, 6}, false); });
  add["functional.interpolate, area"] = function([](Tensors& x) {
    return F::interpolate(x[0], F::InterpolateFuncOptions().size(std::vector<int64_t>{5, 4}).mode(torch::kArea));
  });
  add["functional.interpolate, nearest-exact"] = function([](Tensors& x) {
    return F::interpolate(
        x[0], F::InterpolateFuncOptions().scale_factor(std::vector<double>{1.7, 1.7}).mode(torch::kNearestExact));
  });
  add["functional.interpolate, antialias"] = function([](Tensors& x) {
    return F::interpolate(x[0], F::InterpolateFuncOptions()
                                    .size(std::vector<int64_t>{5, 4})
                                    .mode(torch::kBilinear)
                                    .align_corners(false)
                                    .antialias(true));
  });
  add["functional.interpolate, recompute_scale_factor"] = function([](Tensors& x) {
    return F::interpolate(x[0], F::InterpolateFuncOptions()
                                    .scale_factor(std::vector<double>{1.7, 1.7})
                                    .mode(torch::kBilinear)
                                    .align_corners(false)
                                    .recompute_scale_factor(true));
  });
  add["functional.pad, circular"] = function([](Tensors& x) {
    return F::pad(x[0], F::PadFuncOptions({1, 2, 2, 1}).mode(torch::kCircular));
  });
  add["utils.clip_grad_norm_"] = function([](Tensors& x) {
    Tensors leaves;
    for (const auto& tensor : x) {
      leaves.push_back(at::zeros_like(tensor).set_requires_grad(true));
      leaves.back().mutable_grad() = tensor.detach().clone();
    }
    torch::nn::utils::clip_grad_norm_(leaves, 1.0);
    return std::make_tuple(leaves[0].grad(), leaves[1].grad());
  });
  add["utils.parameters_to_vector"] = function([](Tensors& x) { return torch::nn::utils::parameters_to_vector(x); });
}

void add_init(Subjects& add) {
  const auto on_copy = [](auto fill) {
    return function([fill](Tensors& x) {
      auto tensor = x[0].detach().clone();
      fill(tensor);
      return tensor;
    });
  };
  add["init.uniform_"] = on_copy([](at::Tensor& t) { init::uniform_(t, -0.3, 0.7); });
  add["init.normal_"] = on_copy([](at::Tensor& t) { init::normal_(t, 0.1, 0.02); });
  add["init.constant_"] = on_copy([](at::Tensor& t) { init::constant_(t, 0.3); });
  add["init.eye_"] = on_copy([](at::Tensor& t) { init::eye_(t); });
  add["init.dirac_"] = on_copy([](at::Tensor& t) { init::dirac_(t); });
  add["init.xavier_uniform_"] = on_copy([](at::Tensor& t) { init::xavier_uniform_(t, 1.3); });
  add["init.xavier_normal_"] = on_copy([](at::Tensor& t) { init::xavier_normal_(t); });
  add["init.kaiming_uniform_"] = on_copy([](at::Tensor& t) { init::kaiming_uniform_(t); });
  add["init.kaiming_normal_"] = on_copy([](at::Tensor& t) { init::kaiming_normal_(t); });
  add["init.kaiming_normal_, fan_out, relu"] =
      on_copy([](at::Tensor& t) { init::kaiming_normal_(t, 0, torch::kFanOut, torch::kReLU); });
  add["init.orthogonal_"] = on_copy([](at::Tensor& t) { init::orthogonal_(t); });
  add["init.sparse_"] = on_copy([](at::Tensor& t) { init::sparse_(t, 0.4); });
  add["init.calculate_gain"] = function([](Tensors&) {
    return at::tensor(
        {init::calculate_gain(torch::kLinear), init::calculate_gain(torch::kTanh), init::calculate_gain(torch::kReLU),
         init::calculate_gain(torch::kLeakyReLU, 0.2), init::calculate_gain(torch::kSigmoid)},
        at::kDouble);
  });
}

// Five steps from x[0] with the gradients that a small net gives: returns the weights.
template <typename Optimizer, typename Options>
std::function<Subject()> steps(Options options) {
  return function([options](Tensors& x) {
    auto weight = x[0].detach().clone().set_requires_grad(true);
    Optimizer optimizer(std::vector<at::Tensor>{weight}, options);
    for (int step = 0; step < 5; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        auto loss = (torch::tanh(x[1].detach().mm(weight)) - x[2].detach()).square().mean();
        loss.backward();
        return loss;
      });
    }
    return weight.detach();
  });
}

void add_optimizers(Subjects& add) {
  using namespace torch::optim;
  add["optim.SGD"] = steps<SGD>(SGDOptions(0.1));
  add["optim.SGD, momentum, weight_decay"] =
      steps<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.01));
  add["optim.SGD, nesterov"] = steps<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true));
  add["optim.Adam"] = steps<Adam>(AdamOptions(0.01));
  add["optim.Adam, amsgrad, weight_decay"] = steps<Adam>(AdamOptions(0.01).amsgrad(true).weight_decay(0.01));
  add["optim.AdamW"] = steps<AdamW>(AdamWOptions(0.01));
  add["optim.RMSprop"] = steps<RMSprop>(RMSpropOptions(0.01));
  add["optim.RMSprop, centered, momentum"] =
      steps<RMSprop>(RMSpropOptions(0.01).centered(true).momentum(0.9).weight_decay(0.01));
  add["optim.Adagrad"] = steps<Adagrad>(AdagradOptions(0.01).lr_decay(0.01));
  add["optim.LBFGS"] = steps<LBFGS>(LBFGSOptions(0.5).max_iter(4));
  add["optim.LBFGS, strong_wolfe"] = steps<LBFGS>(LBFGSOptions(1).max_iter(4).line_search_fn("strong_wolfe"));
}

}  // namespace

void add_functions(Subjects& subjects) {
  add_functional(subjects);
  add_init(subjects);
  add_optimizers(subjects);
}

}  // namespace ddp::test
