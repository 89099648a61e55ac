// The two ways to train the transformer on several ranks, with the same functions: each rank has the whole model, or a
// part of each parameter.
#pragma once

#include <cstdint>
#include <optional>

#include <ddprun/ddp.h>

#include "examples/models/transformer.h"
#include "examples/text/arguments.h"

namespace text {

class ReplicatedModel {
 public:
  ReplicatedModel(const Arguments& args, const ddp::GroupHandle& group)
      : net_(made(args, group)), model_(net_, group) {}

  /// The module whose parameters the optimizer updates and checkpoints contain.
  torch::nn::Module& trained() { return *net_; }
  torch::Tensor forward(const torch::Tensor& input) { return model_(input); }
  /// Runs a forward without the other ranks.
  torch::Tensor evaluate(const torch::Tensor& input) { return net_(input); }
  /// Gradients are exchanged once per update, in its last pass.
  std::optional<ddp::NoSyncGuard> before_pass(bool is_last) {
    return is_last ? std::nullopt : std::optional<ddp::NoSyncGuard>(model_->no_sync());
  }
  void clip(double largest_norm) { ddp::optim::clip_grad_norm_(net_->parameters(), largest_norm); }
  void add_to(ddp::TrainingState& state) { state.shared = {{"buckets", model_->bucket_layout()}}; }
  /// Whether each forward needs all ranks.
  static constexpr bool kIsDivided = false;

 private:
  static models::Transformer made(const Arguments& args, const ddp::GroupHandle& group) {
    models::Transformer net(args.net);
    if (!args.weights.empty()) ddp::load_weights(args.weights, net, group);
    net->to(group.device());
    return net;
  }

  models::Transformer net_;
  ddp::DistributedDataParallel<models::Transformer> model_;
};

class ShardedModel {
 public:
  ShardedModel(const Arguments& args, const ddp::GroupHandle& group)
      : model_(ddp::fully_shard(
            made(args, group), group,
            {.units = {ddp::each<models::TransformerBlock>()}, .initial_values = args.weights.empty()})) {
    if (!args.weights.empty()) ddp::load_weights(args.weights, model_, group);  // each rank reads its rows
  }

  torch::nn::Module& trained() { return *model_; }
  torch::Tensor forward(const torch::Tensor& input) { return model_(input); }
  torch::Tensor evaluate(const torch::Tensor& input) { return model_(input); }
  /// Gradients are reduced in each pass: gradients that are accumulated locally would be as large as the model.
  static std::optional<ddp::NoSyncGuard> before_pass(bool /*is_last*/) { return std::nullopt; }
  void clip(double largest_norm) { model_->clip_grad_norm_(largest_norm); }
  static void add_to(ddp::TrainingState& /*state*/) {}
  static constexpr bool kIsDivided = true;

 private:
  // Makes the model without ever having all of it in memory.
  static models::Transformer made(const Arguments& args, const ddp::GroupHandle& group) {
    auto net = ddp::deferred_init([&] { return models::Transformer(args.net); });
    net->to(group.device());
    return net;
  }

  ddp::FullySharded<models::Transformer> model_;
};

}  // namespace text
