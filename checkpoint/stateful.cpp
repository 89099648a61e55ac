#include <torch/csrc/api/include/torch/serialize/input-archive.h>
#include <torch/csrc/api/include/torch/serialize/output-archive.h>
#include <torch/nn/module.h>

#include <utility>

#include <ddprun/checkpoint/tensor_files.h>

#include "checkpoint/module_state.h"
#include "checkpoint/safetensors_bytes.h"
#include "ddprun/checkpoint/training_state.h"

namespace ddp::detail {

std::string save_module(const torch::nn::Module& module) {
  const auto state = module_state(module);
  require_whole(state, "the bytes of an object",
                "Pass a sharded model as TrainingState::model, which may be one of several models.");
  check_loadable(state);
  TextSink sink;
  write_safetensors(sink, state);
  return std::move(sink.text);
}

void load_module(const std::string& bytes, torch::nn::Module& module) {
  // What the module's own save() wrote, through a reference to the module itself.
  if (bytes.starts_with("PK")) {
    load_archive(bytes, [&](auto& archive) { module.load(archive); });
    return;
  }
  const auto stored = view_safetensors(storage::own_bytes(bytes), "the module's state");
  assign(read_matching(stored, module_state(module), {}).assignments);
}

std::string save_archive(const std::function<void(torch::serialize::OutputArchive&)>& save) {
  torch::serialize::OutputArchive archive;
  save(archive);
  std::string bytes;
  archive.save_to([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return bytes;
}

void load_archive(const std::string& bytes, const std::function<void(torch::serialize::InputArchive&)>& load) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  load(archive);
}

}  // namespace ddp::detail
