#include "checkpoint/pt_run.h"

#include <limits>
#include <stdexcept>
#include <utility>

#include "base/crc32c.h"
#include "checkpoint/bytes_as_tensors.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt_tensors.h"
#include "checkpoint/safetensors_bytes.h"

namespace ddp {
namespace {

class FileBuilder {
 public:
  explicit FileBuilder(ReceivedRun& run) : run_(run) {}

  void text(const std::string& name, std::string text) {
    if (text.empty()) return;
    run_.manifest.files[name] = {.size = text.size(), .crc32c = crc32c(text.data(), text.size())};
    run_.files[name] = storage::own_bytes(std::move(text));
  }

  void tensors(const std::string& name, const TensorMap& tensors, const Metadata& metadata = {}) {
    TextSink sink;
    write_safetensors(sink, tensors, metadata);
    text(name, std::move(sink.text));
  }

 private:
  ReceivedRun& run_;
};

TensorMap rank_tensors(const pt::PtFile& file, const pt::RunState& state) {
  TensorMap tensors;
  for (size_t rank = 0; rank < state.rng.size(); ++rank) {
    for (const auto& [device, entry] : state.rng[rank]) {
      const auto name = "rank." + std::to_string(rank) + ".rng." + device;
      tensors.emplace(name, view_pt(file, name, entry));
    }
  }
  for (size_t rank = 0; rank < state.per_rank.size(); ++rank) {
    for (const auto& [name, bytes] : state.per_rank[rank]) {
      tensors.emplace("rank." + std::to_string(rank) + ".object." + name, as_tensor(bytes));
    }
  }
  return tensors;
}

}  // namespace

ReceivedRun read_pt_run(const std::filesystem::path& path, const std::string& key, int world_size) {
  storage::FileSystem file_system;
  auto bytes = storage::map_file(file_system, path);
  if (!pt::looks_like_pt(bytes.view)) {
    throw std::runtime_error(
        path.string() + " is neither a checkpoint folder nor a .pt file: " +
        unsupported_file_or(bytes.view, path, "load_weights() reads files with a model's tensors alone"));
  }
  const pt::PtFile file(std::move(bytes), path);
  ReceivedRun run;
  run.is_selected = true;
  try {
    const auto state = pt::find_run(file, key);
    const auto ranks = state.world_size.value_or(state.rng.empty() ? world_size : int64_t(state.rng.size()));
    if (!state.foreign_step.empty()) {
      throw std::runtime_error("its " + safetensors::quote_name(state.foreign_step) +
                               ", which says how far the run is, is an object that is not read: save it with int()");
    }
    if (ranks < 1 || ranks > std::numeric_limits<int>::max())
      throw std::runtime_error("its world_size is out of range");
    run.manifest.step = state.step.value_or(0);
    run.manifest.world_size = static_cast<int>(ranks);
    FileBuilder files(run);
    // What cannot be read is missing in the model, and named there; half an optimizer's state is none.
    auto skipped = state.model.skipped;
    if (state.has_model) files.tensors(kModelFile, view_pt(file, state.model, skipped), state.model.metadata);
    if (!state.has_model) run.entries = state.model.entries;
    run.skipped = skipped;
    for (const auto& [name, optimizer] : state.optimizers) {
      auto odd = optimizer.skipped;
      const auto tensors = view_pt(file, optimizer, odd);
      if (!odd.empty())
        throw std::runtime_error("the optimizer's " + odd.begin()->first + " is " + odd.begin()->second);
      files.tensors(optimizer_file(name), tensors, optimizer.metadata);
    }
    files.text("scaler.state", state.scaler);
    files.text("schedule.state", state.schedule);
    files.text("sampler.state", state.sampler);
    for (const auto& [name, text] : state.shared) files.text("shared-" + name + ".state", text);
    files.tensors(kRanksFile, rank_tensors(file, state));
    files.text(kValuesFile, state.values);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path.string() + " cannot be read as a training run: " + error.what());
  }
  return run;
}

}  // namespace ddp
