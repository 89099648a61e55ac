// A run as a folder of torch.distributed.checkpoint.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "checkpoint/core/python_state.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/tool/element_reader.h"
#include "checkpoint/tool/folder_forms.h"
#include "checkpoint/tool/new_folder.h"

namespace ddp::tool {
namespace {

using nlohmann::json;

class DcpRun {
 public:
  void add_model(const Parts& parts) {
    for (const auto& tensor : parts.model) add(dcp::Path{"model", tensor.name}, tensor);
    for (const auto& tensor : tied_weights(parts)) add(dcp::Path{"model", tensor.name}, tensor);
  }

  // `groups` with the options that Python's class has.
  void add_optimizer(const dcp::Path& path, const OptimizerPart& optimizer, const json& groups) {
    std::map<std::string, int64_t> numbers;  // as Python counts parameters through all groups
    bool has_names = true;
    for (const auto& group : groups) {
      for (const auto& parameter : group.at("params")) {
        has_names = has_names && !parameter.get<std::string>().starts_with('#');
        numbers.emplace(parameter.get<std::string>(), static_cast<int64_t>(numbers.size()));
      }
    }
    if (has_names) {
      add_by_name(path, optimizer, groups);
    } else {
      add_by_number(path, optimizer, groups, numbers);
    }
  }

  void add_value(dcp::Path path, const json& value) { contents_.values.emplace_back(std::move(path), value.dump()); }

  void write(storage::FileSystem& file_system, const std::filesystem::path& folder) {
    dcp::write_dcp_folder(file_system, folder, contents_,
                          [&](size_t tensor, size_t, storage::ByteSink& sink) { reader_.write(tensor, sink); });
  }

 private:
  void add(dcp::Path path, const RawTensor& tensor) {
    reader_.add(tensor);
    contents_.tensors.push_back({{.path = std::move(path), .dtype = tensor.dtype, .shape = tensor.sizes},
                                 {{.rank = 0, .box = shards::whole(tensor.sizes)}}});
  }

  static dcp::Path below(dcp::Path path, std::initializer_list<dcp::Path::value_type> rest) {
    path.insert(path.end(), rest);
    return path;
  }

  void add_by_name(const dcp::Path& path, const OptimizerPart& optimizer, const json& groups) {
    for (const auto& tensor : optimizer.tensors) add(below(path, {tensor.name}), tensor);
    for (const auto& group : groups) {
      for (const auto& parameter : group.at("params")) {
        for (const auto& [option, value] : group.items()) {
          if (option == "params") continue;
          add_value(below(path, {"param_groups." + parameter.get<std::string>() + "." + option}), value);
        }
      }
    }
  }

  void add_by_number(const dcp::Path& path, const OptimizerPart& optimizer, const json& groups,
                     const std::map<std::string, int64_t>& numbers) {
    for (const auto& tensor : optimizer.tensors) {
      for (const auto& [parameter, number] : numbers) {
        const auto prefix = "state." + parameter + ".";
        if (tensor.name.starts_with(prefix)) {
          add(below(path, {"state", number, tensor.name.substr(prefix.size())}), tensor);
          break;
        }
      }
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      for (const auto& [option, value] : groups[i].items()) {
        auto stored = value;
        if (option == "params") {
          for (auto& parameter : stored) parameter = numbers.at(parameter.get<std::string>());
        }
        add_value(below(path, {"param_groups", place, option}), stored);
      }
    }
  }

  dcp::DcpContents contents_;
  ElementReader reader_;
};

void add_objects(const TensorSource& source, DcpRun& run, LeftOut& left_out) {
  for (const auto& [file, text] : source.objects()) {
    auto name = file.substr(0, file.size() - kObjectEnding.size());
    const auto object = name.starts_with(kShared) ? std::nullopt : json_object(text);
    if (!object) {
      left_out["objects, which need a .pt file or a checkpoint"].push_back(name);
    } else if (name == "schedule") {
      run.add_value({"scheduler"}, parse_shallow_json(python_schedule(*object)));
    } else {
      run.add_value({name}, parse_shallow_json(*object));
    }
  }
}

// Whether a part of the run has that key.
bool is_taken(const TensorSource& source, const std::string& name) {
  const auto object = name == "scheduler" ? "schedule" : name;
  return name == "model" || name == "optim" || name == "optimizers" ||
         source.objects().contains(object + std::string(kObjectEnding));
}

void add_run(const TensorSource& source, const Parts& parts, DcpRun& run, LeftOut& left_out) {
  for (const auto& [name, optimizer] : parts.optimizers) {
    const auto path = name.empty() ? dcp::Path{"optim"} : dcp::Path{"optimizers", name};
    const auto groups = parse_shallow_json(pt::with_python_defaults(groups_of(source, name, optimizer)));
    run.add_optimizer(path, optimizer, groups.at("param_groups"));
  }
  add_objects(source, run, left_out);
  const auto values = plain_values(source);
  for (const auto& [name, value] : values.items()) {
    if (is_taken(source, name)) {
      left_out[kTakenNames].push_back(name);
    } else {
      run.add_value({name}, value);
    }
  }
  if (const auto ranks = source.files().find(std::string(kRanksFile)); ranks != source.files().end()) {
    for (const auto& tensor : ranks->second.tensors) {
      left_out["states of ranks, which need a .pt file or a checkpoint"].push_back(tensor.name);
    }
  }
}

}  // namespace

LeftOut write_dcp_run(const TensorSource& source, const std::filesystem::path& target, const ConvertOptions& options) {
  refuse_existing(target);
  auto parts = parts_of(source, options.weights_only);
  DcpRun run;
  run.add_model(parts);
  if (!options.weights_only) add_run(source, parts, run, parts.left_out);
  storage::FileSystem file_system;
  NewFolder folder(file_system, target);
  run.write(file_system, folder.path());
  folder.commit();
  return std::move(parts.left_out);
}

}  // namespace ddp::tool
