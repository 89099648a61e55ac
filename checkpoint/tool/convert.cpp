#include "checkpoint/tool/convert.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/core/atomic_file.h"
#include "checkpoint/core/python_state.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/tool/element_reader.h"
#include "checkpoint/tool/folder_forms.h"
#include "checkpoint/tool/tensor_file.h"
#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {
namespace {

pt::PtTensor as_pt(const RawTensor& tensor) {
  return {.name = tensor.name, .dtype = tensor.dtype, .sizes = tensor.sizes, .bytes = tensor.bytes};
}

// A tensor, perhaps with elements that `reader` reads from files.
pt::PtTensor as_pt(const RawTensor& tensor, ElementReader& reader) {
  auto result = as_pt(tensor);
  if (tensor.part == nullptr) return result;
  const auto number = reader.add(tensor);
  result.stream = {.size = tensor.size(),
                   .writer = [&reader, number](storage::ByteSink& sink) { reader.write(number, sink); },
                   .identity = tensor.chunked};
  return result;
}

// The rank's number in a name; nothing for other text, or for a number above the most ranks of a job.
std::optional<size_t> rank_of(std::string_view digits) {
  constexpr size_t kMaxRanks = 1 << 20;
  size_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank >= kMaxRanks) return std::nullopt;
  return rank;
}

// "rank.3.rng.cpu" and "rank.3.object.name".
void add_ranks(const RawFile& file, pt::PtContents& contents, LeftOut& left_out) {
  const auto leave_out = [&](const RawTensor& tensor) {
    left_out["tensors of " + std::string(kRanksFile) + " that are not the state of a rank"].push_back(tensor.name);
  };
  for (const auto& tensor : file.tensors) {
    const auto dot = tensor.name.find('.', 5);
    if (!tensor.name.starts_with("rank.") || dot == std::string::npos) {
      leave_out(tensor);
      continue;
    }
    const auto rank = rank_of(std::string_view(tensor.name).substr(5, dot - 5));
    if (!rank) {
      throw std::runtime_error("its ranks.safetensors names no rank: " + safetensors::quote_name(tensor.name));
    }
    const auto rest = std::string_view(tensor.name).substr(dot + 1);
    if (rest.starts_with("rng.")) {
      if (contents.rng.size() <= *rank) contents.rng.resize(*rank + 1);
      auto state = as_pt(tensor);
      state.name = rest.substr(4);
      contents.rng[*rank].push_back(std::move(state));
    } else if (rest.starts_with("object.")) {
      if (contents.per_rank.size() <= *rank) contents.per_rank.resize(*rank + 1);
      contents.per_rank[*rank].emplace(rest.substr(7), tensor.bytes);
    } else {
      leave_out(tensor);
    }
  }
}

// Scaler, schedule and sampler under Python's names; what is not JSON (the program's own objects) as bytes.
void add_objects(const TensorSource& source, nlohmann::json& values, pt::PtContents& contents, LeftOut& left_out) {
  for (const auto& [file, text] : source.objects()) {
    auto name = file.substr(0, file.size() - kObjectEnding.size());
    if (name.starts_with(kShared)) {
      contents.shared.emplace(name.substr(kShared.size()), text);
      continue;
    }
    const bool is_schedule = name == "schedule";
    if (is_schedule) name = "scheduler";
    if (values.contains(name)) left_out[kTakenNames].push_back(name);
    if (const auto object = json_object(text)) {
      values[name] = parse_shallow_json(is_schedule ? python_schedule(*object) : *object);
    } else {
      values.erase(name);
      contents.objects.emplace(name, text);
    }
  }
}

// A plain value beside the parts of a run may have the name of a part: {"model": "resnet50", "state_dict": …}.
void remove_taken_names(nlohmann::json& values, const pt::PtContents& contents, LeftOut& left_out) {
  for (const auto& name : pt::part_names(contents)) {
    if (values.erase(name) != 0) left_out[kTakenNames].push_back(name);
  }
}

void add_run(const TensorSource& source, const Parts& parts, ElementReader& reader, pt::PtContents& contents,
             LeftOut& left_out) {
  for (const auto& [name, optimizer] : parts.optimizers) {
    auto& target = contents.optimizers[name];
    target.groups = groups_of(source, name, optimizer);
    for (const auto& tensor : optimizer.tensors) target.tensors.push_back(as_pt(tensor, reader));
  }
  const auto ranks = source.files().find(std::string(kRanksFile));
  if (ranks != source.files().end()) add_ranks(ranks->second, contents, left_out);
  auto values = plain_values(source);
  add_objects(source, values, contents, left_out);
  remove_taken_names(values, contents, left_out);
  if (!values.empty()) contents.values = values.dump();
}

// Texts of metadata that name no tensor. Python's libraries write {"format": "pt"} everywhere.
void name_texts(Parts& parts) {
  std::set<std::string> names;
  for (const auto& tensor : parts.model) names.insert(tensor.name);
  for (const auto& [key, value] : parts.metadata) {
    const bool is_tied = names.contains(value) && !names.contains(key);
    if (!is_tied && key != "format") parts.left_out["texts of metadata"].push_back(key);
  }
}

void write_pt_file(const TensorSource& source, Parts& parts, storage::ByteSink& sink, bool weights_only) {
  pt::PtContents contents;
  ElementReader reader;
  for (const auto& tensor : parts.model) contents.model.push_back(as_pt(tensor, reader));
  for (const auto& tensor : tied_weights(parts)) contents.model.push_back(as_pt(tensor, reader));
  if (!weights_only) {
    name_texts(parts);
    add_run(source, parts, reader, contents, parts.left_out);
  }
  pt::write_pt(sink, contents);
}

void write_safetensors_file(const Parts& parts, storage::ByteSink& sink, bool weights_only) {
  auto metadata = parts.metadata;
  auto tensors = parts.model;
  const auto optimizer = parts.optimizers.find("");
  if (!weights_only && parts.optimizers.size() > (optimizer != parts.optimizers.end() ? 1 : 0)) {
    throw std::invalid_argument(
        "a .safetensors file holds one optimizer, but the source has optimizers with names: convert to .pt, or give "
        "--weights-only");
  }
  if (!weights_only && optimizer != parts.optimizers.end()) {
    metadata[pt::kOptimizerMetadata] = optimizer->second.groups;
    tensors.insert(tensors.end(), optimizer->second.tensors.begin(), optimizer->second.tensors.end());
  }
  write_tensor_file(sink, tensors, metadata);
}

LeftOut convert_to_file(const TensorSource& source, const std::filesystem::path& target, bool weights_only) {
  const auto ending = target.extension();
  const bool to_pt = ending == ".pt" || ending == ".pth";
  if (!to_pt && ending != ".safetensors") {
    throw std::invalid_argument("the target " + target.string() +
                                " must end in .pt, .pth or .safetensors; for a folder give --to");
  }
  auto parts = parts_of(source, weights_only);
  AtomicFile file(target);
  if (to_pt) {
    write_pt_file(source, parts, file, weights_only);
  } else {
    write_safetensors_file(parts, file, weights_only);
    if (!weights_only) parts.left_out.merge(other_contents(source));
  }
  file.commit();
  return std::move(parts.left_out);
}

}  // namespace

LeftOut convert(const TensorSource& source, const std::filesystem::path& target, const ConvertOptions& options) {
  switch (options.to) {
    case TargetForm::kFile:
      return convert_to_file(source, target, options.weights_only);
    case TargetForm::kHuggingFace:
      return write_hugging_face_folder(source, target, options);
    case TargetForm::kDcp:
      return write_dcp_run(source, target, options);
    case TargetForm::kCheckpoint:
      return write_checkpoint(source, target, options);
  }
  throw std::logic_error("an unknown form");
}

}  // namespace ddp::tool
