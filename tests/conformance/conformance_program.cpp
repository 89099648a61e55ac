// One rank of the training that a description tells; conformance_twin.py is the same in Python, and says what the
// arguments are.
//
//     program DESCRIPTION FOLDER HOP
//
// HOP -1 trains from the first step to the last; another one is that of the description's "hops", which goes on from
// the checkpoint FOLDER/run and saves one there. What is compared goes to FOLDER/cpp.HOP.rank<rank>.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/report.h>
#include <ddprun/data/batches.h>
#include <ddprun/data/datasets.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/loader.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/averaged_model.h>
#include <ddprun/optim/clip_grad.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/random_sampler.h>
#include <ddprun/samplers/weighted_sampler.h>
#include <ddprun/syncbn/conversion.h>

#include "tests/conformance/net.h"
#include "tests/conformance/optimizers.h"
#include "tests/conformance/records.h"
#include "tests/conformance/schedules.h"

namespace conformance {

constexpr std::chrono::seconds kDeadline{120};
constexpr int64_t kClasses = 5;

inline ddp::Batch draw_batch(const Json& settings, int64_t seed, int64_t size) {
  at::Generator random = generator(seed);
  std::vector<int64_t> shape{size};
  for (const Json& extent : settings["input"]["shape"]) shape.push_back(extent);
  ddp::Batch batch;
  if (settings["input"]["kind"] == "tokens") {
    batch.data = torch::randint(0, settings["input"]["words"].get<int64_t>(), shape, random, torch::kLong);
  } else {
    batch.data = torch::randn(shape, random);
  }
  if (settings["loss"] == "cross_entropy") {
    batch.target = torch::randint(0, kClasses, {size}, random, torch::kLong);
    return batch;
  }
  const torch::Tensor y = torch::randn({size, kClasses}, random);
  batch.target = settings["loss"] == "bce" ? (y > 0).to(torch::kFloat) : y;
  return batch;
}

// For LibTorch's own loader.
class Examples : public torch::data::datasets::Dataset<Examples> {
 public:
  explicit Examples(ddp::Batch all) : all_(std::move(all)) {}
  torch::data::Example<> get(size_t index) override {
    const auto row = static_cast<int64_t>(index);
    return {all_.data[row], all_.target[row]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(all_.data.size(0)); }

 private:
  ddp::Batch all_;
};

inline ddp::CommHook hook_named(const std::string& name, const ddp::ProcessGroup& group) {
  if (name == "fp16") return ddp::hooks::fp16_compress(group);
  if (name == "bf16") return ddp::hooks::bf16_compress(group);
  if (name == "allreduce") return ddp::hooks::all_reduce(group);
  if (name == "fp16_wrapped") return ddp::hooks::fp16_compress_wrapper(ddp::hooks::all_reduce(group));
  return ddp::hooks::power_sgd(ddp::make_power_sgd_state(
      group, {.matrix_approximation_rank = std::stoll(name.substr(9)), .start_iteration = 2}));
}

inline ddp::DdpOptions ddp_options(const Json& settings, const ddp::ProcessGroup& group) {
  const Json& given = settings["ddp"];
  ddp::DdpOptions options{.find_unused_parameters = given["find_unused"],
                          .static_graph = given["static"],
                          .gradient_as_bucket_view = given["views"],
                          .broadcast_buffers = given["broadcast_buffers"],
                          .init_sync = given["init_sync"],
                          .lazy_bucket_allocation = given["lazy"],
                          .ignored = given["ignored"].get<std::vector<std::string>>()};
  if (given["auto_bucket"].get<bool>()) {
    options.bucket_cap_bytes = ddp::kAutoBucketCap;
  } else if (given["bucket_cap_bytes"] != 0) {
    options.bucket_cap_bytes = given["bucket_cap_bytes"].get<int64_t>();
  }
  if (!given["own_engine"].is_null()) options.own_engine = given["own_engine"].get<bool>();
  if (!given["batched_grad_copy"].is_null()) options.batched_grad_copy = given["batched_grad_copy"].get<bool>();
  if (!given["delayed"].is_null()) {
    options.delayed = {.names = given["delayed"]["names"].get<std::vector<std::string>>(),
                       .trigger = given["delayed"]["trigger"]};
  }
  if (!settings["hook"].is_null()) options.comm_hook = hook_named(settings["hook"], group);
  return options;
}

inline Net make_net(const Json& settings, const ddp::ProcessGroup& group) {
  Net net(settings["layers"]);
  initialise(*net, 1000 * settings["seed"].get<int64_t>() +
                       (settings["ddp"]["init_sync"].get<bool>() ? 97 * group.rank() : 0));
  for (const std::string name : settings["frozen"]) {
    for (torch::Tensor& parameter : net->named_children()[name]->parameters()) parameter.set_requires_grad(false);
  }
  if (settings["kind"] == "sync_bn") ddp::convert_sync_batchnorm(net, group);
  return net;
}

inline std::optional<ddp::optim::AveragedModel<Net>> make_average(const Json& settings, const Net& net) {
  if (settings["ema"].is_null()) return std::nullopt;
  const Json& given = settings["ema"];
  const std::string name = given["function"];
  ddp::optim::AveragedModelOptions options{.use_buffers = given["buffers"],
                                           .make_copy = [layers = settings["layers"]] { return Net(layers).ptr(); }};
  if (name == "ema") options.avg_fn = ddp::optim::get_ema_avg_fn(given["decay"]);
  if (name == "multi_ema") options.multi_avg_fn = ddp::optim::get_ema_multi_avg_fn(given["decay"]);
  if (name == "swa") options.avg_fn = ddp::optim::get_swa_avg_fn();
  if (name == "multi_swa") options.multi_avg_fn = ddp::optim::get_swa_multi_avg_fn();
  return ddp::optim::AveragedModel<Net>(net, options);
}

inline ddp::GradScaler make_scaler(const Json& settings) {
  if (settings["scaler"].is_null()) return ddp::GradScaler({.enabled = false, .device = c10::kCPU});
  return ddp::GradScaler({.init_scale = settings["scaler"]["init_scale"],
                          .growth_interval = settings["scaler"]["growth_interval"],
                          .device = c10::kCPU});
}

inline std::unique_ptr<ddp::EpochSampler> make_sampler(const Json& data, const ddp::ProcessGroup& group) {
  const int64_t length = data["length"];
  const uint64_t seed = data["seed"];
  if (data["sampler"] == "random") {
    const ddp::RandomSamplerOptions options{.replacement = data["replacement"], .seed = seed};
    return std::make_unique<ddp::RandomSampler>(length, group, options);
  }
  if (data["sampler"] == "weighted") {
    std::vector<double> weights;
    for (int64_t i = 0; i < length; ++i) weights.push_back(1.0 + static_cast<double>(i % 3));
    const ddp::WeightedSamplerOptions options{.replacement = data["replacement"], .seed = seed};
    return std::make_unique<ddp::WeightedSampler>(weights, group, options);
  }
  const ddp::DistributedSamplerOptions options{
      .shuffle = data["shuffle"], .seed = seed, .drop_last = data["drop_last"]};
  return std::make_unique<ddp::DistributedSampler>(length, group, options);
}

class Training {
 public:
  Training(const Json& settings, const ddp::ProcessGroup& group, Records& records)
      : settings_(settings),
        group_(group),
        records_(records),
        net_(make_net(settings, group)),
        model_(net_, group, ddp_options(settings, group)),
        scaler_(make_scaler(settings)) {
    torch::manual_seed(settings["seed"].get<uint64_t>() + static_cast<uint64_t>(group.rank()));
    for (const auto& [name, parameter] : parameters_once(*net_)) parameters_.push_back(parameter);
    optimizer_ = make_optimizer(*net_, settings["optimizer"], group);
    if (!settings["schedule"].is_null()) schedule_.emplace(*optimizer_, settings["schedule"], group);
    average_ = make_average(settings, net_);
    if (settings["data"]["kind"] == "dataset") {
      const Json& data = settings["data"];
      all_ = draw_batch(settings, settings["seed"].get<int64_t>() + 5, data["length"]);
      sampler_ = make_sampler(data, group);
    }
  }

  void save(const std::string& folder) {
    if (auto* zero = dynamic_cast<ddp::ZeroCore*>(optimizer_.get())) zero->consolidate_state();
    ddp::TrainingState all = state();
    all.values.set("micro", micro_);
    all.values.set("epoch", epoch_);
    ddp::CheckpointManager(folder, group_).save(step_, all);
  }
  void load(const std::string& folder) {
    const auto loaded = ddp::CheckpointManager(folder, group_).load_latest(state());
    if (!loaded || !loaded->rng_restored) throw std::runtime_error("the checkpoint has not come whole");
    step_ = loaded->step;
    micro_ = loaded->values.get<int64_t>("micro");
    epoch_ = loaded->values.get<int64_t>("epoch");
  }

  void train(int64_t last) {
    last_ = last;
    if (sampler_) {
      train_epochs();
    } else if (!settings_["join"].is_null()) {
      train_joined();
    } else {
      while (step_ < last_) drawn_step();
    }
    if (settings_["evaluate"].get<bool>()) evaluate();
  }

  // For unusual_steps.h.
  torch::Tensor next_loss() {
    const ddp::Batch batch = draw_batch(settings_, batch_seed(0), settings_["data"]["batch"]);
    const std::string name = "step" + std::to_string(step_) + "/loss" + std::to_string(micro_);
    torch::Tensor loss = loss_of(batch);
    records_.tensor(name, loss);
    last_loss_ = loss;
    return loss;
  }
  std::vector<torch::Tensor> trained() const {
    std::vector<torch::Tensor> result;
    for (const torch::Tensor& parameter : parameters_) {
      if (parameter.requires_grad()) result.push_back(parameter);
    }
    return result;
  }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  ddp::DistributedDataParallel<Net>& model() { return model_; }

 private:
  ddp::TrainingState state() {
    ddp::TrainingState all{.model = net_, .optimizer = *optimizer_};
    if (scaler_.is_enabled()) all.scaler = scaler_;
    if (schedule_) all.schedule = schedule_->state();
    if (sampler_) all.sampler = *sampler_;
    all.shared.emplace("buckets", model_->bucket_layout());
    if (average_) all.shared.emplace("average", **average_);
    return all;
  }

  void train_joined() {
    const Json& join = settings_["join"];
    const int64_t steps =
        settings_["steps"].get<int64_t>() - join["less"].get<int64_t>() * (group_.size() - 1 - group_.rank());
    for (int time = 0; time < 2; ++time) {
      model_->join(
          [&] {
            for (int64_t i = 0; i < std::max<int64_t>(1, steps); ++i) drawn_step();
          },
          {.divide_by_initial_world_size = join["divide_by_initial"]});
    }
    record("end");
  }

  int64_t batch_seed(int64_t part) const {
    return 1'000'003 * (micro_ + part) + 17 * group_.rank() + settings_["seed"].get<int64_t>();
  }

  void drawn_step() {
    std::vector<ddp::Batch> batches;
    for (int64_t part = 0; part < settings_["accumulate"].get<int64_t>(); ++part) {
      batches.push_back(draw_batch(settings_, batch_seed(part), settings_["data"]["batch"]));
    }
    one_step(batches);
  }

  void train_epochs() {
    const Json& data = settings_["data"];
    const ddp::TensorDataset dataset(all_.data, all_.target);
    const int64_t batch = data["batch"];
    const std::string kind = data["loader"];
    const ddp::LoaderOptions options{.batch_size = batch,
                                     .drop_last = data["drop_last_batch"],
                                     .workers = kind == "loader_threads" ? 2 : 1,
                                     .prefetch = 2};
    if (kind == "batches") {
      train_epochs_of([&](auto take) { take(ddp::batches(dataset, *sampler_, batch)); });
    } else if (kind == "torch") {
      auto loader = torch::data::make_data_loader(Examples(all_).map(torch::data::transforms::Stack<>()), *sampler_,
                                                  static_cast<size_t>(batch));
      train_epochs_of([&](auto take) { take(*loader); });
    } else if (kind == "device") {
      ddp::DeviceLoader<ddp::TensorDataset> loader(dataset, *sampler_, c10::Device(c10::kCPU), options);
      train_epochs_of([&](auto take) { take(loader); });
    } else {
      ddp::Loader<ddp::TensorDataset> loader(dataset, *sampler_, options);
      train_epochs_of([&](auto take) { take(loader); });
    }
  }

  // `with_loader` calls what it is given with something to range over.
  template <typename WithLoader>
  void train_epochs_of(WithLoader with_loader) {
    const Json& data = settings_["data"];
    const int64_t batch = data["batch"];
    const auto accumulate = settings_["accumulate"].get<size_t>();
    while (step_ < last_) {
      sampler_->set_epoch(epoch_);
      const int64_t samples = sampler_->size();
      int64_t left = data["drop_last_batch"].get<bool>() ? samples / batch : (samples + batch - 1) / batch;
      with_loader([&](auto&& loader) {
        std::vector<ddp::Batch> waiting;
        for (auto& next : loader) {
          waiting.push_back({next.data, next.target});
          --left;
          if (waiting.size() < accumulate && left != 0) continue;
          one_step(waiting);
          waiting.clear();
          if (step_ == last_) break;
        }
      });
      if (left != 0) return;
      if (schedule_ && settings_["schedule"]["per"] == "epoch") schedule_->step(0);
      ++epoch_;
    }
  }

  torch::Tensor loss_of(const ddp::Batch& batch) {
    namespace functional = torch::nn::functional;
    net_->turn = micro_ % 4 == 3 ? 0 : micro_ + group_.rank();
    ++micro_;
    std::optional<ddp::Autocast> autocast;
    if (!settings_["autocast"].is_null()) {
      autocast.emplace(c10::kCPU, ddp::AutocastOptions{.dtype = dtype_named(settings_["autocast"])});
    }
    const torch::Tensor y = model_(batch.data);
    const std::string name = settings_["loss"];
    if (name == "cross_entropy") return functional::cross_entropy(y, batch.target);
    if (name == "mse") return functional::mse_loss(y, batch.target);
    if (name == "smooth_l1") return functional::smooth_l1_loss(y, batch.target);
    return functional::binary_cross_entropy_with_logits(y, batch.target);
  }

  void one_step(const std::vector<ddp::Batch>& batches) {
    ++step_;
    change_parameters();
    if (settings_["unusual"].is_null()) {
      backward(batches);
    } else {
      unusual_step();
    }
    update();
    record("step" + std::to_string(step_));
  }
  void unusual_step();

  void change_parameters() {
    const Json& freeze = settings_["freeze"];
    if (!freeze.is_null()) {
      const bool is_frozen = freeze["from"].get<int64_t>() <= step_ && step_ < freeze["to"].get<int64_t>();
      for (torch::Tensor& parameter : net_->named_children()[freeze["name"].get<std::string>()]->parameters()) {
        parameter.set_requires_grad(!is_frozen);
      }
    }
    for (const Json& hook : settings_["parameter_hooks"]) {
      if (hook["from"] != step_) continue;
      const std::string kind = hook["kind"];
      net_->named_parameters()[hook["name"].get<std::string>()].register_hook([kind](const torch::Tensor& gradient) {
        if (kind == "scaled") return gradient * 0.75;
        if (kind == "constant") return torch::full_like(gradient, 0.01);
        return gradient.new_full({}, 0.005).expand_as(gradient);
      });
    }
  }

  void zero_grad(bool set_to_none) {
    if (auto* fused = dynamic_cast<ddp::optim::FusedOptimizer*>(optimizer_.get())) return fused->zero_grad(set_to_none);
    optimizer_->zero_grad(set_to_none);
  }

  void backward(const std::vector<ddp::Batch>& batches) {
    zero_grad(settings_["zero_grad"] == "none");
    bool overflows = false;
    if (scaler_.is_enabled()) {
      for (const int64_t at : settings_["scaler"]["overflow_at"]) overflows = overflows || at == step_;
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      std::optional<ddp::NoSyncGuard> local;
      if (i + 1 < batches.size()) local.emplace(model_->no_sync());
      torch::Tensor loss = loss_of(batches[i]);
      records_.tensor("step" + std::to_string(step_) + "/loss" + std::to_string(i), loss);
      loss = loss / static_cast<int64_t>(batches.size());
      scaler_.scale(overflows ? loss * std::numeric_limits<double>::infinity() : loss).backward();
      last_loss_ = loss;
    }
  }

  void clip(const std::string& place) {
    const Json& given = settings_["clip"];
    if (scaler_.is_enabled()) scaler_.unscale_(*optimizer_);
    if (given["kind"] == "value") return ddp::optim::clip_grad_value_(parameters_, given["limit"]);
    const double norm_type =
        given["norm_type"] == "inf" ? std::numeric_limits<double>::infinity() : given["norm_type"].get<double>();
    if (given["by"] == "torch") {
      records_.number(place + "/norm", torch::nn::utils::clip_grad_norm_(parameters_, given["limit"], norm_type));
    } else {
      records_.number(
          place + "/norm",
          ddp::optim::clip_grad_norm_(parameters_, given["limit"], {.norm_type = norm_type}).item<double>());
    }
  }

  void update() {
    const std::string place = "step" + std::to_string(step_);
    for (const auto& [name, parameter] : parameters_once(*net_))
      records_.tensor(place + "/gradient/" + name, parameter.grad());
    if (!settings_["clip"].is_null()) clip(place);
    scaler_.step(*optimizer_);
    scaler_.update();
    if (schedule_ && settings_["schedule"]["per"] == "step") schedule_->step(last_loss_.item<double>());
    if (average_) (*average_)->update_parameters(net_);
  }

  void record(const std::string& place) {
    size_t number = 0;
    for (auto& group : optimizer_->param_groups()) {
      records_.number(place + "/lr" + std::to_string(number++), group.options().get_lr());
    }
    for (const auto& [name, parameter] : parameters_once(*net_)) records_.tensor(place + "/" + name, parameter);
    record_buffers(place + "/", *net_);
    if (scaler_.is_enabled()) records_.number(place + "/scale", scaler_.get_scale());
    for (const auto& [name, parameter] : parameters_once(*net_)) {
      for (const auto& [key, value] : state_of(*optimizer_, parameter))
        records_.tensor(place + "/state/" + name + "/" + key, value);
    }
    if (!average_) return;
    const torch::nn::Module& averaged = *(*average_)->module();
    for (const auto& [name, parameter] : parameters_once(averaged)) records_.tensor(place + "/ema/" + name, parameter);
    record_buffers(place + "/ema/", averaged);
  }
  void record_buffers(const std::string& before, const torch::nn::Module& module) {
    for (const auto& buffer : module.named_buffers()) records_.tensor(before + buffer.key(), buffer.value());
  }

  void evaluate() {
    const torch::NoGradGuard no_grad;
    net_->eval();
    net_->turn = 1;
    records_.tensor("evaluation", net_(draw_batch(settings_, settings_["seed"].get<int64_t>() + 77, 6).data));
    net_->train();
  }

  const Json& settings_;
  const ddp::ProcessGroup& group_;
  Records& records_;
  Net net_;
  ddp::DistributedDataParallel<Net> model_;
  std::vector<torch::Tensor> parameters_;
  Optimizer optimizer_;
  ddp::GradScaler scaler_;
  std::optional<AnySchedule> schedule_;
  std::optional<ddp::optim::AveragedModel<Net>> average_;
  ddp::Batch all_;
  std::unique_ptr<ddp::EpochSampler> sampler_;
  torch::Tensor last_loss_;
  int64_t step_ = 0;
  int64_t micro_ = 0;
  int64_t epoch_ = 0;
  int64_t last_ = 0;
};

}  // namespace conformance

#include "tests/conformance/unusual_steps.h"

int main(int count, char** arguments) try {
  if (count != 4) throw std::invalid_argument("usage: program DESCRIPTION FOLDER HOP");
  at::set_num_threads(1);
  std::ifstream file(arguments[1]);
  const conformance::Json settings = conformance::Json::parse(file);
  const std::string folder = arguments[2];
  const int hop = std::stoi(arguments[3]);
  ddp::ProcessGroupOptions options{.timeout = conformance::kDeadline};
  options.backend = settings["backend"].get<std::string>();
  const ddp::ProcessGroup group = ddp::init_process_group(options);
  conformance::Records records(folder + "/cpp." + std::to_string(hop) + ".rank" + std::to_string(group.rank()));
  conformance::Training training(settings, group, records);
  if (hop > 0) training.load(folder + "/run");
  training.train(hop < 0 ? settings["steps"].get<int64_t>()
                         : settings["hops"][static_cast<size_t>(hop)][1].get<int64_t>());
  if (hop >= 0) training.save(folder + "/run");
  records.close();
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
