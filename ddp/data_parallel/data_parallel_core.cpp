#include "ddprun/detail/ddp/data_parallel_core.h"

#include <torch/nn/module.h>

#include <exception>
#include <stdexcept>

#include <ddprun/ddp/data_parallel.h>

#include "comm/core/cuda_devices.h"
#include "ddp/data_parallel/device_threads.h"
#include "ddp/data_parallel/replicas.h"

namespace ddp {
namespace {

c10::Device cuda(int index, int count) {
  if (index < 0 || index >= count) {
    throw std::invalid_argument("DataParallel: CUDA device " + std::to_string(index) +
                                " does not exist: " + std::to_string(count) + " are visible");
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

std::vector<c10::Device> choose_devices(const DataParallelOptions& options) {
  if (options.replicas < 0) throw std::invalid_argument("DataParallel: replicas must be at least 0");
  if (options.replicas > 0) {
    if (!options.device_ids.empty() || options.output_device) {
      throw std::invalid_argument(
          "DataParallel: replicas applies to the CPU only, device_ids and output_device to GPUs only");
    }
    return std::vector<c10::Device>(static_cast<size_t>(options.replicas), c10::Device(c10::kCPU));
  }
  const int count = detail::cuda_device_count();
  std::vector<c10::Device> devices;
  for (const int index : options.device_ids) devices.push_back(cuda(index, count));
  for (int index = 0; options.device_ids.empty() && index < count; ++index) devices.push_back(cuda(index, count));
  return devices;
}

std::shared_ptr<torch::nn::Module> copy_of(const torch::nn::Module& model, c10::Device device) {
  try {
    return model.clone(device);
  } catch (const std::logic_error&) {
    throw;  // a wrapper's error, which says what can be cloned
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw std::runtime_error("DataParallel: the model cannot be copied: " + what.substr(0, what.find('\n')) +
                             ". Derive it and its children from torch::nn::Cloneable, or give "
                             "DataParallelOptions::make_replica.");
  }
}

Replicas::MakeReplica maker(const std::shared_ptr<torch::nn::Module>& model, const DataParallelOptions& options) {
  if (!options.make_replica) return [model](c10::Device device) { return copy_of(*model, device); };
  return [make = options.make_replica](c10::Device device) {
    const std::shared_ptr<torch::nn::Module> replica = make();
    if (!replica) throw std::runtime_error("DataParallel: make_replica returned nothing");
    replica->to(device);
    return replica;
  };
}

}  // namespace

DataParallelCore::DataParallelCore(const std::shared_ptr<torch::nn::Module>& model, const DataParallelOptions& options)
    : devices_(choose_devices(options)), output_device_(c10::kCPU), dim_(options.dim) {
  if (!model) throw std::invalid_argument("DataParallel got an empty module holder");
  if (!devices_.empty()) output_device_ = devices_[0];
  if (options.output_device) output_device_ = cuda(*options.output_device, detail::cuda_device_count());
  replicas_ = std::make_unique<Replicas>(model, devices_, maker(model, options));
  check_devices();
  if (!passes_through()) threads_ = std::make_unique<DeviceThreads>(devices_);
}

DataParallelCore::~DataParallelCore() = default;

void DataParallelCore::check_devices() const {
  if (!devices_.empty()) replicas_->check_devices();
}

const std::vector<std::shared_ptr<torch::nn::Module>>& DataParallelCore::refreshed(size_t count) {
  replicas_->refresh(count);
  return replicas_->modules();
}

void DataParallelCore::run(const std::vector<std::function<void()>>& tasks) {
  const auto errors = threads_->run(tasks);
  for (size_t i = 0; i < errors.size(); ++i) {
    if (!errors[i]) continue;
    try {
      std::rethrow_exception(errors[i]);
    } catch (const std::exception& error) {
      const std::string what = error.what();
      std::throw_with_nested(std::runtime_error("DataParallel: replica " + std::to_string(i) + " on " +
                                                devices_[i].str() + ": " +
                                                what.substr(0, what.find("\nException raised from"))));
    }
  }
}

}  // namespace ddp
