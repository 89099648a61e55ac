// Layers with weights, normalization, pooling, padding, shuffles: see subjects.h.
#include <torch/nn/modules.h>

#include "tests/nn/subjects.h"

namespace ddp::test {

namespace {
namespace nn = torch::nn;

void add_bilinear_and_embeddings(Subjects& add) {
  add["Bilinear"] = make<nn::Bilinear>(12, 10, 8);
  add["Bilinear, no bias"] = make<nn::Bilinear>(nn::BilinearOptions(12, 10, 8).bias(false));
  add["Identity"] = make<nn::Identity>();
  add["Flatten"] = make<nn::Flatten>();
  add["Unflatten"] = make<nn::Unflatten>(nn::UnflattenOptions(1, {4, 12}));
  add["Embedding"] = make<nn::Embedding>(20, 16);
  add["Embedding, padding_idx"] = make<nn::Embedding>(nn::EmbeddingOptions(20, 16).padding_idx(3));
  add["Embedding, max_norm"] = make<nn::Embedding>(nn::EmbeddingOptions(20, 16).max_norm(1.0));
  add["Embedding, scale_grad_by_freq"] = make<nn::Embedding>(nn::EmbeddingOptions(20, 16).scale_grad_by_freq(true));
  add["Embedding, sparse"] = make<nn::Embedding>(nn::EmbeddingOptions(20, 16).sparse(true));
  add["EmbeddingBag, mean"] = make<nn::EmbeddingBag>(20, 16);
  add["EmbeddingBag, sum"] = make<nn::EmbeddingBag>(nn::EmbeddingBagOptions(20, 16).mode(torch::kSum));
  add["EmbeddingBag, max"] = make<nn::EmbeddingBag>(nn::EmbeddingBagOptions(20, 16).mode(torch::kMax));
}

void add_convolutions(Subjects& add) {
  add["Conv1d"] = make<nn::Conv1d>(nn::Conv1dOptions(6, 8, 3).padding(1));
  add["Conv1d, no bias, stride 2, dilation 2"] =
      make<nn::Conv1d>(nn::Conv1dOptions(6, 8, 3).bias(false).stride(2).dilation(2));
  add["Conv2d"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 3).padding(1));
  add["Conv2d, 1x1"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 1));
  add["Conv2d, no bias, stride 2"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 3).bias(false).stride(2));
  add["Conv2d, groups"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 12, 3).groups(6));
  add["Conv2d, same"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 4).padding(torch::kSame));
  add["Conv2d, reflect"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 3).padding(1).padding_mode(torch::kReflect));
  add["Conv2d, replicate"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 3).padding(1).padding_mode(torch::kReplicate));
  add["Conv2d, circular"] = make<nn::Conv2d>(nn::Conv2dOptions(6, 8, 3).padding(1).padding_mode(torch::kCircular));
  add["Conv3d"] = make<nn::Conv3d>(nn::Conv3dOptions(4, 6, 3).padding(1));
  add["ConvTranspose1d"] = make<nn::ConvTranspose1d>(nn::ConvTranspose1dOptions(6, 8, 3).stride(2));
  add["ConvTranspose2d"] = make<nn::ConvTranspose2d>(nn::ConvTranspose2dOptions(6, 8, 3).stride(2).output_padding(1));
  add["ConvTranspose2d, groups"] = make<nn::ConvTranspose2d>(nn::ConvTranspose2dOptions(6, 9, 2).groups(3));
  add["ConvTranspose3d"] = make<nn::ConvTranspose3d>(nn::ConvTranspose3dOptions(4, 6, 2).stride(2));
}

void add_norms(Subjects& add) {
  add["BatchNorm1d"] = make<nn::BatchNorm1d>(6);
  add["BatchNorm2d"] = make<nn::BatchNorm2d>(6);
  add["BatchNorm2d, not affine"] = make<nn::BatchNorm2d>(nn::BatchNorm2dOptions(6).affine(false));
  add["BatchNorm2d, no running statistics"] =
      make<nn::BatchNorm2d>(nn::BatchNorm2dOptions(6).track_running_stats(false));
  add["BatchNorm2d, no momentum"] = make<nn::BatchNorm2d>(nn::BatchNorm2dOptions(6).momentum(std::nullopt));
  add["BatchNorm3d"] = make<nn::BatchNorm3d>(4);
  add["InstanceNorm1d"] = make<nn::InstanceNorm1d>(nn::InstanceNorm1dOptions(6).affine(true));
  add["InstanceNorm2d"] = make<nn::InstanceNorm2d>(6);
  add["InstanceNorm2d, affine, running statistics"] =
      make<nn::InstanceNorm2d>(nn::InstanceNorm2dOptions(6).affine(true).track_running_stats(true));
  add["InstanceNorm3d"] = make<nn::InstanceNorm3d>(4);
  add["LayerNorm"] = make<nn::LayerNorm>(nn::LayerNormOptions({48}));
  add["LayerNorm, not affine"] = make<nn::LayerNorm>(nn::LayerNormOptions({48}).elementwise_affine(false));
  add["GroupNorm"] = make<nn::GroupNorm>(3, 6);
  add["GroupNorm, not affine"] = make<nn::GroupNorm>(nn::GroupNormOptions(3, 6).affine(false));
  add["LocalResponseNorm"] = make<nn::LocalResponseNorm>(3);
  add["CrossMapLRN2d"] = make<nn::CrossMapLRN2d>(3);
}

void add_pooling(Subjects& add) {
  add["MaxPool1d"] = make<nn::MaxPool1d>(nn::MaxPool1dOptions(3).stride(2).padding(1));
  add["MaxPool2d"] = make<nn::MaxPool2d>(nn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true));
  add["MaxPool3d"] = make<nn::MaxPool3d>(2);
  add["AvgPool1d"] = make<nn::AvgPool1d>(nn::AvgPool1dOptions(3).stride(2).padding(1));
  add["AvgPool2d"] =
      make<nn::AvgPool2d>(nn::AvgPool2dOptions(3).stride(2).padding(1).ceil_mode(true).count_include_pad(false));
  add["AvgPool3d"] = make<nn::AvgPool3d>(2);
  add["AdaptiveMaxPool1d"] = make<nn::AdaptiveMaxPool1d>(5);
  add["AdaptiveMaxPool2d"] = make<nn::AdaptiveMaxPool2d>(3);
  add["AdaptiveMaxPool3d"] = make<nn::AdaptiveMaxPool3d>(3);
  add["AdaptiveAvgPool1d"] = make<nn::AdaptiveAvgPool1d>(5);
  add["AdaptiveAvgPool2d"] = make<nn::AdaptiveAvgPool2d>(1);
  add["AdaptiveAvgPool3d"] = make<nn::AdaptiveAvgPool3d>(3);
  add["LPPool1d"] = make<nn::LPPool1d>(2, 3);
  add["LPPool2d"] = make<nn::LPPool2d>(2, 3);
  add["LPPool3d"] = make<nn::LPPool3d>(2, 2);
  add["FractionalMaxPool2d"] = make<nn::FractionalMaxPool2d>(nn::FractionalMaxPool2dOptions(2).output_size(4));
  add["FractionalMaxPool3d"] = make<nn::FractionalMaxPool3d>(nn::FractionalMaxPool3dOptions(2).output_ratio(0.5));
  const auto unpooled = [](auto pool, auto unpool) {
    return function([pool, unpool](Tensors& x) {
      const auto [output, indices] = pool.ptr()->forward_with_indices(x[0]);
      return unpool.ptr()->forward(output, indices);
    });
  };
  add["MaxUnpool1d"] = unpooled(nn::MaxPool1d(2), nn::MaxUnpool1d(2));
  add["MaxUnpool2d"] = unpooled(nn::MaxPool2d(2), nn::MaxUnpool2d(2));
  add["MaxUnpool3d"] = unpooled(nn::MaxPool3d(2), nn::MaxUnpool3d(2));
}

void add_shapes(Subjects& add) {
  add["ReflectionPad1d"] = make<nn::ReflectionPad1d>(2);
  add["ReflectionPad2d"] = make<nn::ReflectionPad2d>(2);
  add["ReflectionPad3d"] = make<nn::ReflectionPad3d>(1);
  add["ReplicationPad1d"] = make<nn::ReplicationPad1d>(2);
  add["ReplicationPad2d"] = make<nn::ReplicationPad2d>(2);
  add["ReplicationPad3d"] = make<nn::ReplicationPad3d>(1);
  add["ZeroPad1d"] = make<nn::ZeroPad1d>(2);
  add["ZeroPad2d"] = make<nn::ZeroPad2d>(2);
  add["ZeroPad3d"] = make<nn::ZeroPad3d>(1);
  add["ConstantPad1d"] = make<nn::ConstantPad1d>(2, 0.5);
  add["ConstantPad2d"] = make<nn::ConstantPad2d>(2, 0.5);
  add["ConstantPad3d"] = make<nn::ConstantPad3d>(1, 0.5);
  add["PixelShuffle"] = make<nn::PixelShuffle>(2);
  add["PixelUnshuffle"] = make<nn::PixelUnshuffle>(2);
  add["Fold"] = make<nn::Fold>(nn::FoldOptions({4, 5}, {2, 2}));
  add["Unfold"] = make<nn::Unfold>(nn::UnfoldOptions({2, 3}).padding(1));
  const auto factor = [](double f, int dims) { return std::vector<double>(static_cast<size_t>(dims), f); };
  add["Upsample, nearest"] = make<nn::Upsample>(nn::UpsampleOptions().scale_factor(factor(1.7, 2)));
  add["Upsample, nearest, size"] = make<nn::Upsample>(nn::UpsampleOptions().size(std::vector<int64_t>{13, 11}));
  add["Upsample, linear"] = make<nn::Upsample>(nn::UpsampleOptions().scale_factor(factor(1.7, 1)).mode(torch::kLinear));
  add["Upsample, bilinear"] =
      make<nn::Upsample>(nn::UpsampleOptions().scale_factor(factor(1.7, 2)).mode(torch::kBilinear));
  add["Upsample, bilinear, align_corners"] =
      make<nn::Upsample>(nn::UpsampleOptions().scale_factor(factor(2, 2)).mode(torch::kBilinear).align_corners(true));
  add["Upsample, bilinear, size"] =
      make<nn::Upsample>(nn::UpsampleOptions().size(std::vector<int64_t>{13, 11}).mode(torch::kBilinear));
  add["Upsample, bicubic"] =
      make<nn::Upsample>(nn::UpsampleOptions().scale_factor(factor(1.7, 2)).mode(torch::kBicubic));
  add["Upsample, trilinear"] =
      make<nn::Upsample>(nn::UpsampleOptions().scale_factor(factor(1.5, 3)).mode(torch::kTrilinear));
}

}  // namespace

void add_layers(Subjects& subjects) {
  add_bilinear_and_embeddings(subjects);
  add_convolutions(subjects);
  add_norms(subjects);
  add_pooling(subjects);
  add_shapes(subjects);
}

}  // namespace ddp::test
