// DataParallel: one process, several devices. Reference: torch.nn.DataParallel. DistributedDataParallel with a process
// per device is faster and gives every device batch statistics of its own; this is for programs that must stay one
// process.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/detail/comm/module_holder.h>
#include <ddprun/detail/ddp/data_parallel_core.h>
#include <ddprun/detail/ddp/scatter_gather.h>

namespace ddp {

/// Settings of DataParallel.
struct DataParallelOptions {
  /// CUDA devices to use; the model must be on the first. Empty: all visible devices; on a machine without a GPU the
  /// model is called directly.
  std::vector<int> device_ids{};
  /// CUDA device that gets the results; default: the first of device_ids.
  std::optional<int> output_device{};
  /// Dimension along which batches are cut and results joined.
  int64_t dim = 0;
  /// Instead of GPUs: this many copies of the model on the CPU, a thread each. 0: GPUs.
  int replicas = 0;
  /// For models that cannot clone(): returns a new module of the same class and structure, on any device; its values do
  /// not matter.
  std::function<std::shared_ptr<torch::nn::Module>()> make_replica{};
};

/// The module that a DataParallel holder points to. `Holder` is the model's own holder: a TORCH_MODULE type such as
/// `Net`, or `std::shared_ptr<NetImpl>`.
template <typename Holder>
class DataParallelImpl : public torch::nn::Module {
 public:
  /// The model's class.
  using Contained = std::remove_reference_t<decltype(*std::declval<Holder&>())>;

  /// As DataParallel's constructor.
  DataParallelImpl(Holder module, const DataParallelOptions& options)
      : torch::nn::Module("DataParallel"), module_(std::move(module)), core_(detail::as_module(module_), options) {
    this->register_module("module", detail::as_module(module_));
  }

  /// Cuts every tensor among the arguments along `dim` into a piece per device (a batch smaller than their number
  /// uses fewer), runs the model's forward on all pieces at once and joins the results on the output device. Throws
  /// std::runtime_error that names the device when a forward fails or the model is not on the first device.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments)
      -> decltype(std::declval<Holder&>()->forward(std::forward<Arguments>(arguments)...)) {
    using Result = std::decay_t<decltype(module_->forward(std::forward<Arguments>(arguments)...))>;
    static_assert(!std::is_void_v<Result>, "DataParallel: forward must return its results");
    core_.check_devices();
    if (core_.passes_through()) return module_->forward(std::forward<Arguments>(arguments)...);

    detail::Scatter scatter(core_.devices(), core_.dim());
    (scatter.look_at(arguments), ...);
    const size_t pieces = scatter.pieces();
    const auto& replicas = core_.refreshed(pieces);
    std::vector<std::optional<Result>> results(pieces);
    std::vector<std::function<void()>> tasks;
    for (size_t i = 0; i < pieces; ++i) {
      tasks.push_back([&, i] {
        auto& replica = dynamic_cast<Contained&>(*replicas[i]);
        results[i].emplace(replica.forward(scatter.piece(arguments, i)...));
      });
    }
    core_.run(tasks);
    std::vector<Result> parts;
    for (auto& result : results) parts.push_back(std::move(*result));
    return detail::Gather(core_.output_device(), core_.dim()).join(parts);
  }

  /// The wrapped model, shared with the caller. Its parameter names have no "module." prefix. Save this model, and load
  /// into it.
  Holder& module() { return module_; }
  /// The same for a const wrapper.
  const Holder& module() const { return module_; }
  /// The devices in use; empty if the model is called directly.
  const std::vector<c10::Device>& devices() const { return core_.devices(); }

  /// A wrapper cannot be cloned: throws a std::logic_error whose message says what can be cloned.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    detail::refuse_to_clone("DataParallel");
  }

 private:
  Holder module_;
  DataParallelCore core_;
};

/// Wraps a model so that each forward uses several devices:
///
///     ddp::DataParallel<Net> model(net);                          // all GPUs; on a machine without one, just net
///     auto loss = torch::mse_loss(model(x), y);                   // x of shape (N, …) is cut along dimension 0
///     loss.backward();                                            // gradients of all devices arrive in net
///
/// `Net` and `net` may be what DistributedDataParallel takes. Copies of the model stay on their devices between
/// iterations. Each forward sends them the current values; the gradients are returned in one transfer per device and
/// dtype. The model's buffers (batch norm statistics) get the values of the first piece. Existing copies do not see
/// changes of members other than parameters, buffers and the train/eval mode. The model must derive from
/// torch::nn::Cloneable, or make_replica must be set. On the CPU, autograd runs in the calling thread, so only the
/// forwards run in parallel. Not a collective: no process group is involved.
template <typename Model>
class DataParallel : public torch::nn::ModuleHolder<DataParallelImpl<detail::ModuleHolderOf<Model>>> {
 public:
  /// What holds the model.
  using Holder = detail::ModuleHolderOf<Model>;
  /// What it points to.
  using Impl = DataParallelImpl<Holder>;

  /// An empty holder.
  explicit DataParallel(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}

  /// Wraps the model in a holder. Throws std::invalid_argument for an empty one, devices that do not exist and options
  /// that contradict each other.
  explicit DataParallel(Holder module, const DataParallelOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), options)) {}

  /// Wraps a module that is not a holder and must outlive the wrapper.
  template <typename Plain>
  requires(detail::kIsPlainModule<Model>&& std::is_same_v<Plain, Model>) explicit DataParallel(
      Plain& module, const DataParallelOptions& options = {})
      : DataParallel(detail::borrowed(module), options) {}

  /// The same as `->forward(…)`.
  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

template <typename Model>
DataParallel(Model) -> DataParallel<Model>;
template <typename Model>
DataParallel(Model, const DataParallelOptions&) -> DataParallel<Model>;

}  // namespace ddp

namespace ddp::parallel {
/// Returns one copy of `value` for each device that gets a piece. Tensors in `value` (of shape (N, …) if `dim` is 0)
/// are cut along `dim` into at most one piece per device, all of the same size except the last, and piece i is copied
/// to device i. Tensors without dimensions are copied to every device. Throws std::invalid_argument without devices,
/// and for tensors that would make different numbers of pieces.
template <typename T>
std::vector<T> scatter(const T& value, const std::vector<c10::Device>& devices, int64_t dim = 0) {
  if (devices.empty()) throw std::invalid_argument("scatter: expected at least one device");
  detail::Scatter scatter(devices, dim);
  scatter.look_at(value);
  std::vector<T> pieces;
  for (size_t i = 0; i < scatter.pieces(); ++i) pieces.push_back(scatter.piece(value, i));
  return pieces;
}

/// Joins results of equal structure into one on `device`: their tensors are concatenated along `dim`. Tensors without
/// dimensions become the elements of one tensor. Throws std::invalid_argument without results, and what at::cat throws
/// for shapes that do not fit.
template <typename T>
T gather(const std::vector<T>& results, c10::Device device, int64_t dim = 0) {
  if (results.empty()) throw std::invalid_argument("gather: expected at least one result");
  return detail::Gather(device, dim).join(results);
}

}  // namespace ddp::parallel
