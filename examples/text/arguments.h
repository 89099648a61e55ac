// The options of the text program.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

#include <ddprun/training/command_line.h>
#include <ddprun/training/training_options.h>

#include "examples/models/transformer.h"

namespace text {

struct Arguments {
  ddp::TrainingOptions training{
      .epochs = 10, .lr = 0.001, .loader = {.batch_size = 16}, .checkpoint_dir = "checkpoints/text"};
  models::TransformerOptions net;
  std::string text, tokens, weights, step_losses, prompt = "The ";
  int64_t accumulate = 1, warmup_steps = 20, save_every = 50, sample = 400;
  double validation_ratio = 0.1, weight_decay = 0.1, clip = 1.0, temperature = 0.8;
  bool bf16 = false, shard = false;
};

inline void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  const auto option = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  auto* text = option("--text", args.text, "Text file to train on");
  option("--tokens", args.tokens, "Folder with train.bin and val.bin, not --text")->excludes(text);
  option("--vocabulary", args.net.vocabulary, "Vocabulary size")->check(ddp::whole(1));
  option("--weights", args.weights, "Start from these weights, .pt or .safetensors");
  option("--context", args.net.context, "Sequence length")->check(ddp::whole(1));
  option("--width", args.net.width, "Embedding dimension")->check(ddp::whole(1));
  option("--heads", args.net.heads, "Attention heads")->check(ddp::whole(1));
  option("--layers", args.net.layers, "Transformer blocks")->check(ddp::whole(1));
  option("--dropout", args.net.dropout, "Dropout probability")->check(ddp::finite(0, 1));
  option("--accumulate", args.accumulate, "Backward passes per optimizer step")->check(ddp::whole(1));
  option("--warmup-steps", args.warmup_steps, "Steps of linear learning-rate warmup")->check(ddp::whole(1));
  option("--weight-decay", args.weight_decay, "Weight decay of matrices only")->check(ddp::finite(0));
  option("--clip", args.clip, "Norm to which gradients are clipped")->check(ddp::above(0));
  option("--save-every", args.save_every, "Optimizer steps between checkpoints")->check(ddp::whole(1));
  option("--val-ratio", args.validation_ratio, "Fraction of the text for validation")->check(ddp::finite(0.001, 0.999));
  option("--prompt", args.prompt, "Prompt of the text written at the end");
  option("--sample", args.sample, "Length of the text written at the end")->check(ddp::whole(0));
  option("--temperature", args.temperature, "Sampling temperature of that text")->check(ddp::finite(0.001));
  option("--step-losses", args.step_losses, "File for each step's loss, .csv or .jsonl")->check(ddp::metrics_file());
  app.add_flag("--recompute", args.net.recompute, "Recompute the blocks in backward to save memory");
  app.add_flag("--bf16", args.bf16, "Forward with autocast to bfloat16");
  app.add_flag("--shard", args.shard, "Divide the model over the ranks (fully_shard)");
}

}  // namespace text
