// Trains a small transformer on the bytes of a text and then writes some, or on files of tokens (make_tokens.py):
// gradient accumulation, warm-up and cosine, clipping, bfloat16, checkpoints in mid-epoch.
//
//   ddprun -n 2 build/release/bin/text --text tale.txt --accumulate 2
//   ddprun -n 2 build/release/bin/text --text tale.txt --bf16 --resume
//   ddprun -n 2 build/release/bin/text --text tale.txt --layers 48 --width 1600 --heads 25 --shard --recompute
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

#include "examples/text/arguments.h"
#include "examples/text/parallel_models.h"

namespace {

using text::Arguments;

ddp::AnyDataset sequences(const Arguments& args, const std::string& text, const std::string& file) {
  const auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1 - args.validation_ratio));
  const auto length = args.net.context;
  if (args.tokens.empty()) return ddp::ByteText(file == "/val.bin" ? text.substr(cut) : text.substr(0, cut), length);
  return ddp::Tokens(args.tokens + file, {.length = length, .vocabulary = args.net.vocabulary});
}

torch::Tensor loss_of(const torch::Tensor& logits, const ddp::Batch& batch) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), batch.target.flatten());
}

// Weight decay applies to matrices, not to vectors.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const torch::nn::Module& net, const Arguments& args) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const auto& parameter : net.parameters()) (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
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
  const auto local_only = model.before_pass(update.is_last);
  torch::Tensor loss;
  {
    const ddp::Autocast autocast(batch.data.device(), {.dtype = torch::kBFloat16, .enabled = bf16});
    loss = loss_of(model.forward(batch.data), batch) / update.passes;
  }
  loss.backward();
  return loss.detach();
}

void print_loss(ddp::MetricsFile& file, int64_t step, const torch::Tensor& loss, const Arguments& args,
                const ddp::GroupHandle& group) {
  if (args.step_losses.empty()) return;  // it is a collective
  file.write({{"step", step}, {"loss", ddp::reduce_tensor(loss, group).item<double>()}});
}

// The mean loss of all ranks' parts.
double validate(auto& model, const ddp::AnyDataset& data, const Arguments& args, const ddp::GroupHandle& group) {
  const int64_t size = args.training.loader.batch_size;
  ddp::Average loss;
  int64_t batches = 0;
  for (const auto& batch : ddp::evaluate(model.trained(), data, group, {.batch_size = size})) {
    loss.update(loss_of(model.evaluate(batch.data), batch), batch.data.size(0));
    ++batches;
  }
  // The parts of ranks differ by at most one sample, but all ranks must call a sharded model equally often.
  const int64_t largest = (data.size() + group.size() - 1) / group.size();
  const torch::NoGradGuard no_grad;
  for (; model.kIsDivided && batches < (largest + size - 1) / size; ++batches) {
    model.evaluate(torch::zeros({1, 1}, torch::TensorOptions(group.device()).dtype(torch::kLong)));
  }
  return loss.compute(group);
}

// Writes a text of the bytes that occur in `known`.
std::string write_text(auto& model, const Arguments& args, const std::string& known, const ddp::GroupHandle& group) {
  const torch::NoGradGuard no_grad;
  model.trained().eval();
  torch::manual_seed(args.training.seed);
  auto is_known = torch::zeros({256}, torch::kBool);
  for (const unsigned char byte : known) is_known.mutable_data_ptr<bool>()[byte] = true;
  std::string text = args.prompt.empty() ? "\n" : args.prompt;
  const auto stops = [&] { return model.kIsDivided ? ddp::stop_requested(group) : ddp::told_to_stop(); };
  for (int64_t i = 0; i < args.sample && !stops(); ++i) {
    const auto length = std::min(std::ssize(text), args.net.context);
    const std::vector<unsigned char> bytes(text.end() - length, text.end());
    const auto input = torch::tensor(bytes, torch::kLong).unsqueeze(0).to(group.device());
    const torch::Tensor logits = model.evaluate(input)[0][-1].cpu().to(torch::kFloat);
    const torch::Tensor scores = (logits / args.temperature).where(is_known, torch::full({}, -INFINITY));
    text += static_cast<char>(torch::multinomial(scores.softmax(0), 1).item<int64_t>());
  }
  return text;
}

template <typename Model>
int train(const Arguments& args, const ddp::GroupHandle& group) {
  const auto& options = args.training;
  const std::string text = args.tokens.empty() ? ddp::read_small_file(args.text, uint64_t{1} << 30) : "";
  const auto train = sequences(args, text, "/train.bin"), validation = sequences(args, text, "/val.bin");
  ddp::DistributedSampler sampler(train.size(), group, {.seed = options.seed});
  ddp::DeviceLoader loader(train, sampler, group.device(), options.loader);
  Model model(args, group);
  ddp::optim::AdamW optimizer(groups_of(model.trained(), args));
  const auto updates_of = [&](int64_t passes) { return (passes + args.accumulate - 1) / args.accumulate; };
  ddp::optim::LrScheduler scheduler(optimizer, schedule(args, options.epochs * updates_of(loader.size())));
  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = model.trained(), .optimizer = optimizer, .schedule = scheduler, .sampler = loader};
  model.add_to(state);
  state.values.set("seed", options.seed);
  const auto start = ddp::start_run(checkpoints, state, group, options.resume, "step");
  auto recording = options.recorder;
  recording.steps_done = start.step;
  ddp::RunRecorder recorder(group, optimizer, recording);
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
      model.clip(args.clip);
      optimizer.step();
      scheduler.step();
      recorder.step(loss_of_step, update.passes * options.loader.batch_size);
      print_loss(losses, recorder.steps_done(), loss_of_step, args, group);
      if (recorder.steps_done() % args.save_every != 0 || pass == passes) continue;  // the epoch's own save follows
      checkpoints.save(recorder.steps_done(), state);
      if (ddp::stop_requested(group)) return ddp::kSavedAndStopped;
    }
    const double mean = validate(model, validation, args, group);
    recorder.end_epoch({{"loss", mean}, {"bits_per_byte", mean / std::numbers::ln2}});
    checkpoints.save(recorder.steps_done(), state);
    if (epoch + 1 < options.epochs && ddp::stop_requested(group)) return ddp::kSavedAndStopped;
  }
  if (text.empty() || (group.rank() != 0 && !Model::kIsDivided)) return 0;
  ddp::print_on_main(group, write_text(model, args, text, group));
  return 0;
}

int run(Arguments args) {
  auto& options = args.training;
  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size, args.accumulate));
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);
  return args.shard ? train<text::ShardedModel>(args, group) : train<text::ReplicatedModel>(args, group);
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a small transformer on the bytes of a text with data parallel training.");
  Arguments args;
  text::declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}
