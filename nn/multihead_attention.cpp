#include "ddprun/nn/multihead_attention.h"

#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/empty.h>
#include <torch/nn/init.h>

#include <sstream>
#include <stdexcept>

#include "base/rank_prefix.h"
#include "nn/attention_function.h"
#include "nn/fast_path.h"
#include "nn/masks.h"

namespace ddp::nn {

namespace {

void check(const MultiheadAttentionOptions& options) {
  if (options.embed_dim() > 0 && options.num_heads() > 0 && options.embed_dim() % options.num_heads() == 0) return;
  throw std::invalid_argument(
      rank_prefix() + "MultiheadAttention: embed_dim is " + std::to_string(options.embed_dim()) + " and num_heads " +
      std::to_string(options.num_heads()) + "; both must be positive and embed_dim a multiple of num_heads");
}

[[noreturn]] void refuse(const char* name, const at::Tensor& tensor, const std::string& expected) {
  std::ostringstream text;
  text << rank_prefix() << "MultiheadAttention: " << name << " has the shape " << tensor.sizes() << "; " << expected
       << " is needed";
  throw std::invalid_argument(text.str());
}

void check_inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const MultiheadAttentionOptions& options) {
  const auto check_one = [&](const char* name, const at::Tensor& tensor, int64_t size) {
    if (tensor.dim() != query.dim() || tensor.dim() < 2 || tensor.dim() > 3 || tensor.size(-1) != size) {
      refuse(name, tensor,
             "(sequence, " + std::to_string(size) + ") with or without a batch dimension, as the query's,");
    }
  };
  check_one("query", query, options.embed_dim());
  check_one("key", key, options.kdim());
  check_one("value", value, options.vdim());
  const auto places = static_cast<size_t>(query.dim() - 1);
  if (key.sizes().slice(0, places) != value.sizes().slice(0, places))
    refuse("value", value, "the key's sequence and batch");
  const auto batch = options.batch_first() ? 0 : 1;
  if (query.dim() == 3 && key.size(batch) != query.size(batch)) refuse("key", key, "the query's batch");
}

}  // namespace

MultiheadAttentionOptions::MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads)
    : embed_dim_(embed_dim), num_heads_(num_heads), kdim_(embed_dim), vdim_(embed_dim) {}

MultiheadAttentionOptions::MultiheadAttentionOptions(const torch::nn::MultiheadAttentionOptions& options)
    : embed_dim_(options.embed_dim()),
      num_heads_(options.num_heads()),
      dropout_(options.dropout()),
      bias_(options.bias()),
      add_bias_kv_(options.add_bias_kv()),
      add_zero_attn_(options.add_zero_attn()),
      kdim_(options.kdim()),
      vdim_(options.vdim()) {}

MultiheadAttentionImpl::MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
    : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& options_) : options(options_) {
  check(options);
  MultiheadAttentionImpl::reset();
}

void MultiheadAttentionImpl::reset() {
  const auto size = options.embed_dim();
  const auto parameter = [&](const char* name, at::IntArrayRef shape, bool is_used) {
    return is_used ? register_parameter(name, at::empty(shape)) : register_parameter(name, {}, /*requires_grad=*/false);
  };
  const bool is_packed = options.kdim() == size && options.vdim() == size;
  in_proj_weight = parameter("in_proj_weight", {3 * size, size}, is_packed);
  q_proj_weight = parameter("q_proj_weight", {size, size}, !is_packed);
  k_proj_weight = parameter("k_proj_weight", {size, options.kdim()}, !is_packed);
  v_proj_weight = parameter("v_proj_weight", {size, options.vdim()}, !is_packed);
  in_proj_bias = parameter("in_proj_bias", {3 * size}, options.bias());
  bias_k = parameter("bias_k", {1, 1, size}, options.add_bias_kv());
  bias_v = parameter("bias_v", {1, 1, size}, options.add_bias_kv());
  out_proj = register_module("out_proj", Linear(LinearOptions(size, size).bias(options.bias())));
  draw_parameters();
}

void MultiheadAttentionImpl::draw_parameters() {
  using namespace torch::nn::init;
  for (const auto& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight}) {
    if (weight.defined()) xavier_uniform_(weight);
  }
  if (in_proj_bias.defined()) {
    constant_(in_proj_bias, 0);
    constant_(out_proj->bias, 0);
  }
  for (const auto& bias : {bias_k, bias_v}) {
    if (bias.defined()) xavier_normal_(bias);
  }
}

bool MultiheadAttentionImpl::takes_fast_path(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value) const {
  if (is_training() || query.dim() != 3 || !query.is_same(key) || !key.is_same(value)) return false;
  if (!options.batch_first() || options.num_heads() % 2 != 0 || options.add_bias_kv() || options.add_zero_attn())
    return false;
  if (!in_proj_weight.defined() || !in_proj_bias.defined() || query.scalar_type() != in_proj_weight.scalar_type() ||
      query.scalar_type() != in_proj_bias.scalar_type() || detail::is_cuda_autocast()) {
    return false;
  }
  return detail::may_be_fused({query, in_proj_weight, in_proj_bias, out_proj->weight, out_proj->bias});
}

std::tuple<at::Tensor, at::Tensor> MultiheadAttentionImpl::forward(const at::Tensor& query, const at::Tensor& key,
                                                                   const at::Tensor& value,
                                                                   const at::Tensor& key_padding_mask,
                                                                   bool need_weights, const at::Tensor& attn_mask,
                                                                   bool average_attn_weights, bool is_causal) {
  check_inputs(query, key, value, options);
  const auto padding = detail::additive_mask(key_padding_mask, "key_padding_mask", query.scalar_type());
  const auto mask = detail::additive_mask(attn_mask, "attn_mask", query.scalar_type());
  const bool floats = detail::has_floats(key_padding_mask) || detail::has_floats(attn_mask);
  if (!floats && takes_fast_path(query, key, value)) {
    const auto [merged, kind] = detail::merged_mask(mask, padding, query, options.num_heads());
    return at::_native_multi_head_attention(query, key, value, options.embed_dim(), options.num_heads(), in_proj_weight,
                                            in_proj_bias, out_proj->weight, out_proj->bias,
                                            merged.defined() ? std::optional(merged) : std::nullopt, need_weights,
                                            average_attn_weights, kind);
  }

  auto q = query;
  auto k = key;
  auto v = value;
  const bool is_turned = options.batch_first() && query.dim() == 3;
  if (is_turned) {
    // What was one tensor has to stay one: their projections are computed together then.
    q = query.transpose(1, 0);
    k = key.is_same(value) && query.is_same(key) ? q : key.transpose(1, 0);
    v = key.is_same(value) ? k : value.transpose(1, 0);
  }
  auto [output, weights] = detail::attend(q, k, v, padding, mask,
                                          {.num_heads = options.num_heads(),
                                           .in_proj_weight = in_proj_weight,
                                           .q_proj_weight = q_proj_weight,
                                           .k_proj_weight = k_proj_weight,
                                           .v_proj_weight = v_proj_weight,
                                           .in_proj_bias = in_proj_bias,
                                           .bias_k = bias_k,
                                           .bias_v = bias_v,
                                           .add_zero_attn = options.add_zero_attn(),
                                           .out_proj_weight = out_proj->weight,
                                           .out_proj_bias = out_proj->bias,
                                           .dropout = is_training() ? options.dropout() : 0,
                                           .need_weights = need_weights,
                                           .average_attn_weights = average_attn_weights,
                                           .is_causal = is_causal});
  return {is_turned ? output.transpose(1, 0) : output, weights};
}

}  // namespace ddp::nn
