#include "ddprun/nn/multihead_attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>

#include "base/rank_prefix.h"
#include "nn/fast_path.h"
#include "nn/masks.h"

namespace ddp::nn {

namespace detail {
namespace {

/// Weights and settings. Tensors may be undefined if they may be in MultiheadAttentionImpl.
struct AttentionSettings {
  int64_t num_heads;
  const at::Tensor& in_proj_weight;
  const at::Tensor& q_proj_weight;
  const at::Tensor& k_proj_weight;
  const at::Tensor& v_proj_weight;
  const at::Tensor& in_proj_bias;
  const at::Tensor& bias_k;
  const at::Tensor& bias_v;
  bool add_zero_attn;
  const at::Tensor& out_proj_weight;
  const at::Tensor& out_proj_bias;
  double dropout;  ///< 0 in eval mode
  bool need_weights;
  bool average_attn_weights;
  bool is_causal;
};

using Projections = std::array<at::Tensor, 3>;

[[noreturn]] void refuse(const char* name, const at::Tensor& tensor, const std::string& expected) {
  std::ostringstream text;
  text << rank_prefix() << "MultiheadAttention: " << name << " has the shape " << tensor.sizes() << "; " << expected
       << " is needed";
  throw std::invalid_argument(text.str());
}

std::string shape_text(std::initializer_list<int64_t> sizes) {
  std::ostringstream text;
  text << at::IntArrayRef(sizes);
  return text.str();
}

// Splits the result of `count` projections that were computed in one product. Each part is contiguous.
at::Tensor split_projection(const at::Tensor& joined, int64_t count) {
  const auto size = joined.size(-1) / count;
  return joined.unflatten(-1, {count, size}).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous();
}

// Equal inputs are projected in one product, as in Python, because separate products round differently.
Projections packed_projections(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& weight,
                               const at::Tensor& bias) {
  const auto size = q.size(-1);
  if (!k.is_same(v)) {
    const auto weights = weight.chunk(3);
    const auto biases = bias.defined() ? bias.chunk(3) : std::vector<at::Tensor>(3);
    return {at::linear(q, weights[0], biases[0]), at::linear(k, weights[1], biases[1]),
            at::linear(v, weights[2], biases[2])};
  }
  if (q.is_same(k)) {
    const auto all = split_projection(at::linear(q, weight, bias), 3);
    return {all.select(0, 0), all.select(0, 1), all.select(0, 2)};
  }
  const auto weights = weight.split_with_sizes({size, size * 2});
  const auto biases = bias.defined() ? bias.split_with_sizes({size, size * 2}) : std::vector<at::Tensor>(2);
  const auto query = at::linear(q, weights[0], biases[0]);
  const auto both = split_projection(at::linear(k, weights[1], biases[1]), 2);
  return {query, both.select(0, 0), both.select(0, 1)};
}

Projections projections(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionSettings& settings) {
  if (settings.in_proj_weight.defined())
    return packed_projections(q, k, v, settings.in_proj_weight, settings.in_proj_bias);
  const auto biases = settings.in_proj_bias.defined() ? settings.in_proj_bias.chunk(3) : std::vector<at::Tensor>(3);
  return {at::linear(q, settings.q_proj_weight, biases[0]), at::linear(k, settings.k_proj_weight, biases[1]),
          at::linear(v, settings.v_proj_weight, biases[2])};
}

void pad_masks(at::Tensor& attn_mask, at::Tensor& key_padding_mask) {
  if (attn_mask.defined()) attn_mask = at::pad(attn_mask, {0, 1});
  if (key_padding_mask.defined()) key_padding_mask = at::pad(key_padding_mask, {0, 1});
}

// Moves the heads into the batch dimension: (length, N, E) becomes (N * heads, length, E / heads).
at::Tensor by_heads(const at::Tensor& x, int64_t num_heads) {
  return x.view({x.size(0), x.size(1) * num_heads, x.size(2) / num_heads}).transpose(0, 1);
}

void check_masks(const at::Tensor& query, const at::Tensor& key, const at::Tensor& key_padding_mask,
                 const at::Tensor& attn_mask, int64_t num_heads) {
  const auto length = query.size(0);
  const auto batch = query.size(1);
  const auto source = key.size(0);
  if (attn_mask.defined() && attn_mask.sizes() != at::IntArrayRef({length, source}) &&
      attn_mask.sizes() != at::IntArrayRef({batch * num_heads, length, source})) {
    refuse("attn_mask", attn_mask,
           shape_text({length, source}) + " or " + shape_text({batch * num_heads, length, source}));
  }
  if (key_padding_mask.defined() && key_padding_mask.sizes() != at::IntArrayRef({batch, source})) {
    refuse("key_padding_mask", key_padding_mask, shape_text({batch, source}));
  }
}

std::tuple<at::Tensor, at::Tensor> with_weights(const Projections& heads, const at::Tensor& mask, at::IntArrayRef shape,
                                                const AttentionSettings& settings) {
  const auto& [q, k, v] = heads;
  const auto scaled = q * std::sqrt(1.0 / static_cast<double>(q.size(2)));
  auto weights = mask.defined() ? at::baddbmm(mask, scaled, k.transpose(-2, -1)) : at::bmm(scaled, k.transpose(-2, -1));
  weights = weights.softmax(-1);
  if (settings.dropout > 0) weights = at::dropout(weights, settings.dropout, true);
  auto output = at::bmm(weights, v).transpose(0, 1).reshape({shape[0] * shape[1], shape[2]});
  output = at::linear(output, settings.out_proj_weight, settings.out_proj_bias);
  weights = weights.view({shape[1], settings.num_heads, shape[0], k.size(1)});
  if (settings.average_attn_weights) weights = weights.mean(1);
  return {output.view({shape[0], shape[1], output.size(1)}), weights};
}

at::Tensor without_weights(const Projections& heads, at::Tensor mask, at::IntArrayRef shape,
                           const AttentionSettings& settings, bool is_causal) {
  const auto source = heads[1].size(1);
  if (mask.defined()) {
    mask = mask.size(0) == 1 && mask.dim() == 3 ? mask.unsqueeze(0)
                                                : mask.view({shape[1], settings.num_heads, -1, source});
  }
  const auto size = heads[0].size(2);
  const auto apart = [&](const at::Tensor& x, int64_t length) {
    return x.view({shape[1], settings.num_heads, length, size});
  };
  auto output = at::scaled_dot_product_attention(
      apart(heads[0], shape[0]), apart(heads[1], source), apart(heads[2], source),
      mask.defined() ? std::optional(mask) : std::nullopt, settings.dropout, is_causal);
  output = output.permute({2, 0, 1, 3}).reshape({shape[0] * shape[1], shape[2]});
  output = at::linear(output, settings.out_proj_weight, settings.out_proj_bias);
  return output.view({shape[0], shape[1], output.size(1)});
}

// Returns (attention, weights) for a query (L, N, E) or (L, E), as Python's
// torch.nn.functional.multi_head_attention_forward() does; see MultiheadAttentionImpl::forward(). The masks are
// additive or undefined.
std::tuple<at::Tensor, at::Tensor> attend(at::Tensor query, at::Tensor key, at::Tensor value,
                                          at::Tensor key_padding_mask, at::Tensor attn_mask,
                                          const AttentionSettings& settings) {
  const bool is_batched = query.dim() == 3;
  if (!is_batched) {
    query = query.unsqueeze(1);
    key = key.unsqueeze(1);
    value = value.unsqueeze(1);
    if (key_padding_mask.defined()) key_padding_mask = key_padding_mask.unsqueeze(0);
  }
  if (settings.is_causal && !attn_mask.defined()) {
    throw std::invalid_argument(
        rank_prefix() +
        "MultiheadAttention: is_causal is a hint about attn_mask, which is undefined; pass the causal mask as well");
  }
  check_masks(query, key, key_padding_mask, attn_mask, settings.num_heads);
  const bool is_causal = settings.is_causal && !key_padding_mask.defined();
  if (is_causal && !settings.need_weights) attn_mask.reset();  // the kernel makes its own causal mask

  auto [q, k, v] = projections(query, key, value, settings);
  if (attn_mask.defined() && attn_mask.dim() == 2) attn_mask = attn_mask.unsqueeze(0);
  const auto batch = query.size(1);
  if (settings.bias_k.defined()) {
    k = at::cat({k, settings.bias_k.repeat({1, batch, 1})});
    v = at::cat({v, settings.bias_v.repeat({1, batch, 1})});
    pad_masks(attn_mask, key_padding_mask);
  }
  Projections heads{by_heads(q, settings.num_heads), by_heads(k, settings.num_heads), by_heads(v, settings.num_heads)};
  if (settings.add_zero_attn) {
    const auto zeros = at::zeros({heads[1].size(0), 1, heads[1].size(2)}, k.options());
    heads[1] = at::cat({heads[1], zeros}, 1);
    heads[2] = at::cat({heads[2], zeros}, 1);
    pad_masks(attn_mask, key_padding_mask);
  }
  if (key_padding_mask.defined()) {
    const auto source = heads[1].size(1);
    const auto of_heads = key_padding_mask.view({batch, 1, 1, source})
                              .expand({-1, settings.num_heads, -1, -1})
                              .reshape({batch * settings.num_heads, 1, source});
    attn_mask = attn_mask.defined() ? attn_mask + of_heads : of_heads;
  }

  at::Tensor output;
  at::Tensor weights;
  if (settings.need_weights) {
    std::tie(output, weights) = with_weights(heads, attn_mask, query.sizes(), settings);
  } else {
    output = without_weights(heads, attn_mask, query.sizes(), settings, is_causal);
  }
  if (is_batched) return {output, weights};
  return {output.squeeze(1), weights.defined() ? weights.squeeze(0) : weights};
}

}  // namespace
}  // namespace detail

namespace {

using detail::refuse;

void check(const MultiheadAttentionOptions& options) {
  if (options.embed_dim() > 0 && options.num_heads() > 0 && options.embed_dim() % options.num_heads() == 0) return;
  throw std::invalid_argument(
      rank_prefix() + "MultiheadAttention: embed_dim is " + std::to_string(options.embed_dim()) + " and num_heads " +
      std::to_string(options.num_heads()) + "; both must be positive and embed_dim a multiple of num_heads");
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
    // If inputs were the same tensor, they must stay the same tensor, because their projections are then computed
    // together.
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
