// Trains a small transformer on the bytes of a text and then writes some, or on files of tokens (make_tokens.py):
// gradient accumulation, warm-up and cosine, clipping, bfloat16, checkpoints in mid-epoch.
//
//   ddprun -n 2 build/release/bin/text --text tale.txt --accumulate 2
//   ddprun -n 2 build/release/bin/text --text tale.txt --bf16 --resume
//   build/release/bin/text --text tale.txt                                       one process, no launcher
//   torchrun --no-python --nproc_per_node=2 build/release/bin/text --text tale.txt    or srun -n 2, mpirun -n 2
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

#include "examples/models/transformer.h"

namespace {

struct Arguments {
  ddp::TrainingOptions training{
      .epochs = 10, .lr = 0.001, .loader = {.batch_size = 16}, .checkpoint_dir = "checkpoints/text"};
  models::TransformerOptions net;
  std::string text, tokens, weights, step_losses, prompt = "The ";
  int64_t accumulate = 1, warmup_steps = 20, save_every = 50, sample = 400;
  double validation_ratio = 0.1, weight_decay = 0.1, clip = 1.0, temperature = 0.8;
  bool bf16 = false;
};

void declare(CLI::App& app, Arguments& args) {
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
}

ddp::AnyDataset sequences(const Arguments& args, const std::string& text, const std::string& file) {
  const auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1 - args.validation_ratio));
  const auto length = args.net.context;
  if (args.tokens.empty()) return ddp::ByteText(file == "/val.bin" ? text.substr(cut) : text.substr(0, cut), length);
  return ddp::Tokens(args.tokens + file, {.length = length, .vocabulary = args.net.vocabulary});
}

torch::Tensor loss_of(auto& model, const ddp::Batch& batch) {
  return torch::nn::functional::cross_entropy(model(batch.data).flatten(0, 1), batch.target.flatten());
}

// Matrices are decayed, vectors are not.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const models::Transformer& net, const Arguments& args) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const auto& parameter : net->parameters()) (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
  auto options = ddp::optim::AdamWOptions(args.training.lr).betas({0.9, 0.95}).weight_decay(args.weight_decay);
  return {{matrices, options.clone()}, {vectors, options.weight_decay(0).clone()}};
}

// Warm-up, then half a cosine down to a tenth.
ddp::schedules::Schedule schedule(const Arguments& args, int64_t steps) {
  using namespace ddp::schedules;
  std::vector<Schedule> parts;
  parts.push_back(linear({.start_factor = 0.01, .total_iters = args.warmup_steps}));
  parts.push_back(cosine({.t_max = std::max<int64_t>(1, steps - args.warmup_steps), .eta_min = args.training.lr / 10}));
  return sequential(std::move(parts), {args.warmup_steps});
}

// One backward pass: this batch's part of the optimizer step's loss.
torch::Tensor backward(const ddp::Batch& batch, auto& model, const ddp::UpdatePart& update, bool bf16) {
  std::optional<ddp::NoSyncGuard> local_only;  // gradients are exchanged once per update, in its last pass
  if (!update.is_last) local_only.emplace(model->no_sync());
  torch::Tensor loss;
  {
    const ddp::Autocast autocast(batch.data.device(), {.dtype = torch::kBFloat16, .enabled = bf16});
    loss = loss_of(model, batch) / update.passes;
  }
  loss.backward();
  return loss.detach();
}

void print_loss(ddp::MetricsFile& file, int64_t step, const torch::Tensor& loss, const Arguments& args,
                const ddp::GroupHandle& group) {
  if (args.step_losses.empty()) return;  // it is a collective
  file.write({{"step", step}, {"loss", ddp::reduce_tensor(loss, group).item<double>()}});
}

// Of the bytes that `known` has.
std::string write_text(models::Transformer& net, const Arguments& args, const std::string& known,
                       torch::Device device) {
  const torch::NoGradGuard no_grad;
  net->eval();
  torch::manual_seed(args.training.seed);
  auto is_known = torch::zeros({256}, torch::kBool);
  for (const unsigned char byte : known) is_known.mutable_data_ptr<bool>()[byte] = true;
  std::string text = args.prompt.empty() ? "\n" : args.prompt;
  for (int64_t i = 0; i < args.sample && !ddp::told_to_stop(); ++i) {
    const auto length = std::min(std::ssize(text), args.net.context);
    const std::vector<unsigned char> bytes(text.end() - length, text.end());
    const auto logits = net(torch::tensor(bytes, torch::kLong).unsqueeze(0).to(device))[0][-1].cpu().to(torch::kFloat);
    const auto scores = (logits / args.temperature).where(is_known, torch::full({}, -INFINITY));
    text += static_cast<char>(torch::multinomial(scores.softmax(0), 1).item<int64_t>());
  }
  return text;
}

int run(Arguments args) {
  auto& options = args.training;
  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size, args.accumulate));
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);
  const std::string text = args.tokens.empty() ? ddp::read_small_file(args.text, uint64_t{1} << 30) : "";
  const auto train = sequences(args, text, "/train.bin"), validation = sequences(args, text, "/val.bin");
  ddp::DistributedSampler sampler(train.size(), group, {.seed = options.seed});
  ddp::DeviceLoader loader(train, sampler, group.device(), options.loader);
  models::Transformer net(args.net);
  if (!args.weights.empty()) ddp::load_weights(args.weights, net, group);
  net->to(group.device());
  ddp::DistributedDataParallel model(net, group);
  ddp::optim::AdamW optimizer(groups_of(net, args));
  const auto updates_of = [&](int64_t passes) { return (passes + args.accumulate - 1) / args.accumulate; };
  ddp::optim::LrScheduler scheduler(optimizer, schedule(args, options.epochs * updates_of(loader.size())));
  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .schedule = scheduler, .sampler = loader};
  state.shared = {{"buckets", model->bucket_layout()}};
  state.values.set("seed", options.seed);
  const auto start = ddp::start_run(checkpoints, state, group, options.resume, "step");
  options.recorder.steps_done = start.step;
  ddp::RunRecorder recorder(group, optimizer, options.recorder);
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("step", start.step + 1);
  for (auto epoch = sampler.epoch(); epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    const int64_t passes = loader.size();  // what is left of the epoch
    recorder.begin_epoch(epoch, updates_of(passes));
    int64_t pass = 0;
    torch::Tensor loss_of_step;
    for (const auto& batch : loader) {
      const auto update = ddp::update_part(pass++, passes, args.accumulate);
      if (update.is_first) optimizer.zero_grad();
      const auto loss = backward(batch, model, update, args.bf16);
      loss_of_step = update.is_first ? loss : loss_of_step + loss;
      if (!update.is_last) continue;
      ddp::optim::clip_grad_norm_(net->parameters(), args.clip);
      optimizer.step();
      scheduler.step();
      recorder.step(loss_of_step, update.passes * options.loader.batch_size);
      print_loss(losses, recorder.steps_done(), loss_of_step, args, group);
      if (recorder.steps_done() % args.save_every != 0 || pass == passes) continue;  // the epoch's own save follows
      checkpoints.save(recorder.steps_done(), state);
      if (ddp::stop_requested(group)) return ddp::kSavedAndStopped;
    }
    ddp::Average loss;
    for (const auto& batch : ddp::evaluate(net, validation, group, {.batch_size = options.loader.batch_size})) {
      loss.update(loss_of(net, batch), batch.data.size(0));
    }
    const double mean = loss.compute(group);
    recorder.end_epoch({{"loss", mean}, {"bits_per_byte", mean / std::numbers::ln2}});
    checkpoints.save(recorder.steps_done(), state);
    if (epoch + 1 < options.epochs && ddp::stop_requested(group)) return ddp::kSavedAndStopped;
  }
  if (group.rank() == 0 && !text.empty()) ddp::print_on_main(group, write_text(net, args, text, group.device()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a small transformer on the bytes of a text with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}
