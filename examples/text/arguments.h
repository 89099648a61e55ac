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
  auto* text = option("--text", args.text, "The file to learn from");
  option("--tokens", args.tokens, "Folder of train.bin and val.bin instead")->excludes(text);
  option("--vocabulary", args.net.vocabulary, "Number of different tokens")->check(ddp::whole(1));
  option("--weights", args.weights, "Start from these weights, .pt or .safetensors");
  option("--context", args.net.context, "Bytes in a sequence")->check(ddp::whole(1));
  option("--width", args.net.width, "Numbers that stand for a byte")->check(ddp::whole(1));
  option("--heads", args.net.heads, "Heads of attention")->check(ddp::whole(1));
  option("--layers", args.net.layers, "Blocks")->check(ddp::whole(1));
  option("--dropout", args.net.dropout, "Part of the numbers that a step leaves out")->check(ddp::finite(0, 1));
  option("--accumulate", args.accumulate, "Backward passes per optimizer step")->check(ddp::whole(1));
  option("--warmup-steps", args.warmup_steps, "Steps until the full learning rate")->check(ddp::whole(1));
  option("--weight-decay", args.weight_decay, "Of matrices; biases and norms have none")->check(ddp::finite(0));
  option("--clip", args.clip, "Largest norm of the gradients")->check(ddp::above(0));
  option("--save-every", args.save_every, "Optimizer steps between checkpoints")->check(ddp::whole(1));
  option("--val-ratio", args.validation_ratio, "Part of the text to validate on")->check(ddp::finite(0.001, 0.999));
  option("--prompt", args.prompt, "How the text written at the end begins");
  option("--sample", args.sample, "Bytes that are written at the end")->check(ddp::whole(0));
  option("--temperature", args.temperature, "Lower: more probable bytes")->check(ddp::finite(0.001));
  option("--step-losses", args.step_losses, "File for each step's loss, .csv or .jsonl")->check(ddp::metrics_file());
  app.add_flag("--recompute", args.net.recompute, "Recompute the blocks in backward to save memory");
  app.add_flag("--bf16", args.bf16, "Forward in bfloat16 where that is precise enough");
  app.add_flag("--shard", args.shard, "Divide the model over the ranks: for one that no rank can hold");
}

}  // namespace text
