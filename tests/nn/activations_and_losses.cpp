// Activations, dropouts, distances and losses: see subjects.h.
#include <ATen/ops/linspace.h>
#include <torch/nn/modules.h>

#include "tests/nn/subjects.h"

namespace ddp::test {

namespace {
namespace nn = torch::nn;

// A weight of its own for each: module and options share the tensor, which to() changes.
template <typename Make>
std::function<Subject()> of_weight(Make make_loss) {
  return [=] { return subject_of(make_loss(at::linspace(0.2, 2, 12))); };
}

void add_activations(Subjects& add) {
  add["ELU"] = make<nn::ELU>();
  add["SELU"] = make<nn::SELU>();
  add["Hardshrink"] = make<nn::Hardshrink>();
  add["Hardtanh"] = make<nn::Hardtanh>();
  add["LeakyReLU"] = make<nn::LeakyReLU>(nn::LeakyReLUOptions().negative_slope(0.2));
  add["LogSigmoid"] = make<nn::LogSigmoid>();
  add["Softmax"] = make<nn::Softmax>(-1);
  add["Softmin"] = make<nn::Softmin>(-1);
  add["LogSoftmax"] = make<nn::LogSoftmax>(-1);
  add["Softmax2d"] = make<nn::Softmax2d>();
  add["PReLU"] = make<nn::PReLU>();
  add["PReLU, channels"] = make<nn::PReLU>(nn::PReLUOptions().num_parameters(6));
  add["ReLU"] = make<nn::ReLU>();
  add["ReLU6"] = make<nn::ReLU6>();
  add["RReLU"] = make<nn::RReLU>();
  add["CELU"] = make<nn::CELU>();
  add["GLU"] = make<nn::GLU>();
  add["GELU"] = make<nn::GELU>();
  add["GELU, tanh"] = make<nn::GELU>(nn::GELUOptions().approximate("tanh"));
  add["SiLU"] = make<nn::SiLU>();
  add["Mish"] = make<nn::Mish>();
  add["Sigmoid"] = make<nn::Sigmoid>();
  add["Softplus"] = make<nn::Softplus>();
  add["Softshrink"] = make<nn::Softshrink>();
  add["Softsign"] = make<nn::Softsign>();
  add["Tanh"] = make<nn::Tanh>();
  add["Tanhshrink"] = make<nn::Tanhshrink>();
  add["Threshold"] = make<nn::Threshold>(0.1, 20);
  add["Dropout"] = make<nn::Dropout>(0.3);
  add["Dropout2d"] = make<nn::Dropout2d>(0.3);
  add["Dropout3d"] = make<nn::Dropout3d>(0.3);
  add["AlphaDropout"] = make<nn::AlphaDropout>(0.3);
  add["FeatureAlphaDropout"] = make<nn::FeatureAlphaDropout>(0.3);
  add["CosineSimilarity"] = make<nn::CosineSimilarity>();
  add["PairwiseDistance"] = make<nn::PairwiseDistance>();
}

void add_regression_losses(Subjects& add) {
  add["L1Loss"] = make<nn::L1Loss>();
  add["MSELoss"] = make<nn::MSELoss>();
  add["MSELoss, none"] = make<nn::MSELoss>(nn::MSELossOptions(torch::kNone));
  add["SmoothL1Loss"] = make<nn::SmoothL1Loss>();
  add["SmoothL1Loss, beta"] = make<nn::SmoothL1Loss>(nn::SmoothL1LossOptions(torch::kSum).beta(0.3));
  add["HuberLoss"] = make<nn::HuberLoss>(nn::HuberLossOptions().delta(0.7));
  add["BCELoss"] = make<nn::BCELoss>();
  add["BCEWithLogitsLoss"] = make<nn::BCEWithLogitsLoss>();
  add["BCEWithLogitsLoss, pos_weight"] = of_weight(
      [](const at::Tensor& w) { return nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().pos_weight(w)); });
  add["KLDivLoss"] = make<nn::KLDivLoss>(nn::KLDivLossOptions(torch::kBatchMean));
  add["KLDivLoss, log_target"] = make<nn::KLDivLoss>(nn::KLDivLossOptions(torch::kMean).log_target(true));
  add["PoissonNLLLoss"] = make<nn::PoissonNLLLoss>();
  add["PoissonNLLLoss, full"] = make<nn::PoissonNLLLoss>(nn::PoissonNLLLossOptions().full(true).log_input(false));
  add["MarginRankingLoss"] = make<nn::MarginRankingLoss>(nn::MarginRankingLossOptions().margin(0.2));
  add["HingeEmbeddingLoss"] = make<nn::HingeEmbeddingLoss>();
  add["CosineEmbeddingLoss"] = make<nn::CosineEmbeddingLoss>(nn::CosineEmbeddingLossOptions().margin(0.1));
  add["SoftMarginLoss"] = make<nn::SoftMarginLoss>();
  add["TripletMarginLoss"] = make<nn::TripletMarginLoss>();
  add["TripletMarginLoss, swap"] = make<nn::TripletMarginLoss>(nn::TripletMarginLossOptions().swap(true).p(1));
  add["TripletMarginWithDistanceLoss"] = make<nn::TripletMarginWithDistanceLoss>();
}

void add_classification_losses(Subjects& add) {
  add["NLLLoss"] = make<nn::NLLLoss>();
  add["CrossEntropyLoss"] = make<nn::CrossEntropyLoss>();
  add["CrossEntropyLoss, sum"] = make<nn::CrossEntropyLoss>(nn::CrossEntropyLossOptions().reduction(torch::kSum));
  add["CrossEntropyLoss, label_smoothing"] =
      make<nn::CrossEntropyLoss>(nn::CrossEntropyLossOptions().label_smoothing(0.1));
  add["CrossEntropyLoss, weight"] = of_weight([](const at::Tensor& w) {
    return nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().ignore_index(1).weight(w));
  });
  add["NLLLoss, weight"] = of_weight([](const at::Tensor& w) { return nn::NLLLoss(nn::NLLLossOptions().weight(w)); });
  add["BCELoss, weight"] = of_weight([](const at::Tensor& w) { return nn::BCELoss(nn::BCELossOptions().weight(w)); });
  add["MultiMarginLoss"] = make<nn::MultiMarginLoss>();
  add["MultiLabelMarginLoss"] = make<nn::MultiLabelMarginLoss>();
  add["MultiLabelSoftMarginLoss"] = make<nn::MultiLabelSoftMarginLoss>();
  add["CTCLoss"] = make<nn::CTCLoss>();
  add["AdaptiveLogSoftmaxWithLoss"] = make_with(
      [] {
        return nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(48, 20, {5, 12}));
      },
      [](auto& loss, Tensors& x) { return loss->forward(x[0], x[1]).output; });  // its loss is a number
  add["AdaptiveLogSoftmaxWithLoss, head_bias"] = make_with(
      [] {
        return nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(48, 20, {5, 12}).head_bias(true));
      },
      [](auto& loss, Tensors& x) { return loss->log_prob(x[0]); });
}

}  // namespace

void add_activations_and_losses(Subjects& subjects) {
  add_activations(subjects);
  add_regression_losses(subjects);
  add_classification_losses(subjects);
}

}  // namespace ddp::test
