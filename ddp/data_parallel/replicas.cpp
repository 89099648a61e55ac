#include "ddp/data_parallel/replicas.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <ddprun/detail/comm/device_copy.h>

#include "comm/group/stream_use.h"
#include "comm/versions/autograd_node.h"

namespace ddp {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

// Moves tensors to `device`. Tensors of one dtype are joined for the transfer. Records gradients if that is enabled.
std::vector<at::Tensor> move_together(const std::vector<at::Tensor>& tensors, c10::Device device) {
  std::map<at::ScalarType, std::vector<size_t>> by_dtype;
  for (size_t i = 0; i < tensors.size(); ++i) by_dtype[tensors[i].scalar_type()].push_back(i);
  std::vector<at::Tensor> moved(tensors.size());
  for (const auto& [dtype, members] : by_dtype) {
    std::vector<at::Tensor> rows;
    for (const size_t i : members) rows.push_back(tensors[i].reshape({-1}));
    const at::Tensor flat = to_device(at::cat(rows), device);
    int64_t offset = 0;
    for (const size_t i : members) {
      moved[i] = flat.narrow(0, offset, tensors[i].numel()).view(tensors[i].sizes());
      offset += tensors[i].numel();
    }
  }
  return moved;
}

// The current streams; empty on the CPU.
std::vector<c10::Stream> current_streams(const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const c10::Device device : devices) {
    if (const auto stream = detail::current_stream(device)) streams.push_back(*stream);
  }
  return streams;
}

void wait_for(c10::Stream earlier, c10::Stream stream) {
  if (stream == earlier) return;
  c10::Event reached(stream.device_type());
  reached.record(earlier);
  reached.block(stream);
}

// The backward of "the copies' parameters are the model's". Its inputs are the gradients of all copies' parameters,
// copy by copy; its results are their sums.
class AddGradients final : public torch::autograd::Node {
 public:
  AddGradients(edge_list parameters, size_t count, const std::vector<c10::Device>& devices)
      : torch::autograd::Node(std::move(parameters)),
        count_(count),
        device_(devices[0]),
        streams_(current_streams(devices)) {}

  std::string name() const override { return "ddp::DataParallel"; }

  // Autograd makes the forward's stream current on one device only. This stream has waited for all gradients, on
  // whichever streams they were computed. Users of the sums wait for this stream.
  variable_list apply(variable_list&& gradients) override {
    if (streams_.empty()) return add(std::move(gradients));
    const c10::impl::VirtualGuardImpl guard(device_.type());
    const c10::Stream own = guard.getStream(guard.getDevice());
    for (const c10::Stream stream : streams_) wait_for(own, stream);
    variable_list sums;
    {
      const c10::MultiStreamGuard on_forwards_streams(streams_);
      sums = add(std::move(gradients));
    }
    wait_for(streams_.front(), own);
    return sums;
  }

 private:
  variable_list add(variable_list&& gradients) const {
    variable_list sums(count_);
    for (size_t first = 0; first < gradients.size(); first += count_) {
      std::vector<size_t> places;
      std::vector<at::Tensor> defined;
      for (size_t i = 0; i < count_; ++i) {
        if (!gradients[first + i].defined()) continue;
        places.push_back(i);
        defined.push_back(gradients[first + i]);
      }
      if (defined.empty()) continue;
      detail::record_current_stream(defined);
      if (defined[0].device() != device_) defined = move_together(defined, device_);
      for (size_t k = 0; k < places.size(); ++k) {
        at::Tensor& sum = sums[places[k]];
        sum = sum.defined() ? sum + defined[k] : defined[k];
      }
    }
    return sums;
  }

  const size_t count_;
  const c10::Device device_;
  const std::vector<c10::Stream> streams_;  // of the forward
};

std::vector<at::Tensor> defined_values(const torch::OrderedDict<std::string, at::Tensor>& named) {
  std::vector<at::Tensor> values;
  for (const auto& item : named) {
    if (item.value().defined()) values.push_back(item.value());
  }
  return values;
}

bool same_shapes(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes() || a[i].scalar_type() != b[i].scalar_type()) return false;
  }
  return true;
}

void copy_values(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to, c10::Device device) {
  if (from.empty()) return;
  const std::vector<at::Tensor> moved = from[0].device() == device ? from : move_together(from, device);
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(moved[i]);
}

}  // namespace

// A module's tensors. For a copy also the model's state that it was last made equal to.
struct Replicas::Values {
  std::vector<at::Tensor> parameters{};
  std::vector<at::Tensor> buffers{};
  std::vector<std::pair<const void*, int64_t>> seen{};  // address and version of each of the model's parameters

  static std::unique_ptr<Values> of(const torch::nn::Module& module) {
    auto values = std::make_unique<Values>();
    values->parameters = defined_values(module.named_parameters());
    values->buffers = defined_values(module.named_buffers());
    return values;
  }
};

Replicas::Replicas(std::shared_ptr<torch::nn::Module> model, std::vector<c10::Device> devices, MakeReplica make_replica)
    : devices_(std::move(devices)), make_replica_(std::move(make_replica)) {
  modules_.push_back(std::move(model));
  values_.push_back(Values::of(*modules_[0]));
}

Replicas::~Replicas() = default;

void Replicas::check_devices() const {
  const auto check = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device() == devices_[0]) return;
    std::ostringstream text;
    text << "DataParallel: the model must be on " << devices_[0] << ", the first of the devices, but '" << name
         << "' is on " << tensor.device() << ": call model->to(" << devices_[0] << ") first";
    throw std::runtime_error(text.str());
  };
  for (const auto& item : modules_[0]->named_parameters()) check(item.key(), item.value());
  for (const auto& item : modules_[0]->named_buffers()) check(item.key(), item.value());
}

bool Replicas::same_structure(size_t replica) const {
  return same_shapes(values_[0]->parameters, values_[replica]->parameters) &&
         same_shapes(values_[0]->buffers, values_[replica]->buffers);
}

// Building a module draws its initial values from the default generator. That must not change the program's own random
// numbers.
void Replicas::make(size_t count) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCPU));
  at::Tensor state;
  {
    const std::lock_guard lock(generator.mutex());
    state = generator.get_state();
  }
  while (modules_.size() < count) {
    const c10::Device device = devices_[modules_.size()];
    modules_.push_back(make_replica_(device));
    values_.push_back(Values::of(*modules_.back()));
    if (!same_structure(modules_.size() - 1)) {
      modules_.pop_back();
      values_.pop_back();
      throw std::runtime_error(
          "DataParallel: the copy of the model does not have the same parameters and buffers as the model. The model's "
          "reset() must register everything that its constructor registers.");
    }
    for (const at::Tensor& parameter : values_.back()->parameters) parameter.set_requires_grad(false);
  }
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void Replicas::refresh(size_t count) {
  values_[0] = Values::of(*modules_[0]);
  bool valid = true;
  for (size_t i = 1; i < modules_.size(); ++i) valid = valid && same_structure(i);
  if (!valid) {
    modules_.resize(1);
    values_.resize(1);
  }
  make(count);

  const bool with_gradients = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor>& parameters = values_[0]->parameters;
  std::vector<std::pair<const void*, int64_t>> now;
  for (const at::Tensor& parameter : parameters) now.emplace_back(parameter.const_data_ptr(), parameter._version());
  const auto modes = modules_[0]->modules();
  for (size_t i = 1; i < count; ++i) {
    Values& copy = *values_[i];
    if (devices_[i] == devices_[0]) {
      for (size_t k = 0; k < parameters.size(); ++k) {
        if (!copy.parameters[k].is_alias_of(parameters[k])) copy.parameters[k].set_data(parameters[k].variable_data());
      }
    } else {
      // Copied in each forward: LibTorch's optimizers change Tensor::data(), which no version counter shows. When the
      // model's version counters change, the copies' counters change too. So a change between a forward and its
      // backward is found in both.
      const bool is_changed = copy.seen != now;
      std::vector<at::Tensor> targets;
      for (const at::Tensor& parameter : copy.parameters) {
        targets.push_back(is_changed ? parameter.detach() : parameter.variable_data());
      }
      copy_values(parameters, targets, devices_[i]);
      copy.seen = now;
    }
    // Every forward changes the running statistics, and no backward in training mode uses them. So they are written
    // without a change of their version counters.
    std::vector<at::Tensor> targets;
    for (const at::Tensor& buffer : copy.buffers) targets.push_back(buffer.variable_data());
    copy_values(values_[0]->buffers, targets, devices_[i]);
    // Parents come before their children, since children may have another mode.
    const auto copied = modules_[i]->modules();
    for (size_t k = 0; k < modes.size(); ++k) {
      if (copied[k]->is_training() != modes[k]->is_training()) copied[k]->train(modes[k]->is_training());
    }
  }
  connect(count, with_gradients);
}

// Each forward has its own node, so that the graphs of several forwards can exist before their backwards.
void Replicas::connect(size_t count, bool with_gradients) {
  if (!with_gradients) return;
  const std::vector<at::Tensor>& parameters = values_[0]->parameters;
  edge_list edges;
  for (const at::Tensor& parameter : parameters) edges.push_back(torch::autograd::impl::gradient_edge(parameter));
  const auto node = versions::make_node<AddGradients>(std::move(edges), parameters.size(), devices_);
  for (size_t i = 1; i < count; ++i) {
    for (size_t k = 0; k < parameters.size(); ++k) {
      const at::Tensor& copy = values_[i]->parameters[k];
      const uint32_t place = node->add_input_metadata(copy);
      torch::autograd::impl::set_gradient_edge(copy, parameters[k].requires_grad() ? Edge(node, place) : Edge());
    }
  }
}

}  // namespace ddp
