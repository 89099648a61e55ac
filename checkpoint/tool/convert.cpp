#include "checkpoint/tool/convert.h"

#include <map>
#include <stdexcept>
#include <utility>

#include "checkpoint/atomic_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/state_dict.h"

namespace ddp::tool {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optim.safetensors";

// What of a source belongs to the model, what to its optimizer.
struct Parts {
  std::vector<RawTensor> model{};
  std::vector<RawTensor> optimizer{};
  Metadata metadata{};  ///< the model's, which names tied weights
  std::string groups{};
};

void add_file(const RawFile& file, Parts& parts) {
  const auto groups = file.metadata.find(pt::kOptimizerMetadata);
  if (groups != file.metadata.end()) parts.groups = groups->second;
  for (const auto& tensor : file.tensors) {
    const bool of_optimizer = groups != file.metadata.end() && tensor.name.starts_with("state.");
    (of_optimizer ? parts.optimizer : parts.model).push_back(tensor);
  }
}

Parts parts_of(const TensorSource& source) {
  Parts parts;
  if (source.manifest() == nullptr) {
    const auto& file = source.files().at("");
    add_file(file, parts);
    parts.metadata = file.metadata;
    parts.metadata.erase(pt::kOptimizerMetadata);
    return parts;
  }
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const auto found = source.files().find(name);
    if (found == source.files().end()) continue;
    add_file(found->second, parts);
    if (name == kModelFile) parts.metadata = found->second.metadata;
  }
  return parts;
}

pt::PtTensor as_pt(const RawTensor& tensor) {
  return {.name = tensor.name, .dtype = tensor.dtype, .sizes = tensor.sizes, .bytes = tensor.bytes};
}

void write_pt_file(const TensorSource& source, const Parts& parts, storage::ByteSink& sink, bool weights_only) {
  pt::PtContents contents;
  std::map<std::string, const RawTensor*> by_name;
  for (const auto& tensor : parts.model) {
    contents.model.push_back(as_pt(tensor));
    by_name.emplace(tensor.name, &tensor);
  }
  // Tied weights are stored once, and the metadata maps their other names to the first.
  for (const auto& [alias, name] : parts.metadata) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || by_name.count(alias) != 0) continue;
    auto tied = as_pt(*found->second);
    tied.name = alias;
    contents.model.push_back(std::move(tied));
  }
  if (!weights_only) {
    contents.optimizer = parts.groups;
    for (const auto& tensor : parts.optimizer) contents.optimizer_tensors.push_back(as_pt(tensor));
    if (source.manifest() != nullptr) {
      contents.values = "{\"step\": " + std::to_string(source.manifest()->step);
      if (!source.values().empty()) contents.values += ", \"values\": " + source.values();
      contents.values += "}";
    }
  }
  pt::write_pt(sink, contents);
}

void write_safetensors_file(const Parts& parts, storage::ByteSink& sink, bool weights_only) {
  safetensors::Header header;
  header.metadata = parts.metadata;
  if (!weights_only && !parts.groups.empty()) header.metadata[pt::kOptimizerMetadata] = parts.groups;
  std::map<std::string, std::string_view> data;
  const auto add = [&](const std::vector<RawTensor>& tensors) {
    for (const auto& tensor : tensors) {
      const auto* dtype = safetensors_dtype(tensor.dtype);
      if (dtype == nullptr) {
        throw std::invalid_argument("the safetensors format has no dtype for " + tensor.dtype + " (tensor " +
                                    safetensors::quote_name(tensor.name) + ")");
      }
      header.tensors.push_back({.name = tensor.name, .dtype = *dtype, .shape = tensor.sizes});
      data.emplace(tensor.name, tensor.bytes);
    }
  };
  add(parts.model);
  if (!weights_only) add(parts.optimizer);
  safetensors::assign_ranges(header.tensors);
  const auto head = safetensors::format_header(header);
  sink.write(head.data(), head.size());
  for (const auto& entry : header.tensors) sink.write(data.at(entry.name).data(), data.at(entry.name).size());
}

}  // namespace

void convert(const TensorSource& source, const std::filesystem::path& target, bool weights_only) {
  const auto ending = target.extension();
  const bool to_pt = ending == ".pt" || ending == ".pth";
  if (!to_pt && ending != ".safetensors") {
    throw std::invalid_argument("the target " + target.string() + " must end in .pt, .pth or .safetensors");
  }
  const auto parts = parts_of(source);
  AtomicFile file(target);
  if (to_pt) {
    write_pt_file(source, parts, file, weights_only);
  } else {
    write_safetensors_file(parts, file, weights_only);
  }
  file.commit();
}

}  // namespace ddp::tool
